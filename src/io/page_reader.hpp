// Pages of a mapped file that a thread of its own asks the system for.
//
// Linux cuts each request to about the read-ahead of the device, often 128 KiB, and drops the rest of it
// without a word. So a stretch is asked for in pieces. Asking takes time too, which is not the caller's.
#pragma once

#include "moeloom/base/stretch.hpp"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>

namespace moeloom {

class PageReader {
 public:
  /// Of the mapping that begins at `data`, which must outlive it.
  explicit PageReader(std::byte* data) : data_(data), thread_([this](const std::stop_token& s) { run(s); }) {}

  /// After what was asked for before, and without waiting for it.
  void ask_for(const Stretch& bytes);
  /// What was to be asked for and lies in these is not any more.
  void forget(const Stretch& bytes);

 private:
  void run(const std::stop_token& stop);

  std::byte* const data_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Stretch> wanted_;
  std::jthread thread_;  // ends before what it uses
};

}  // namespace moeloom
