// A way of overlap with or without a thread that moves messages: "all", "all+thread", "all+1" (on processor
// 1).
#pragma once

#include "moeloom/base/progress_thread.hpp"

#include <charconv>
#include <memory>
#include <stdexcept>
#include <string>

namespace moeloom::bench {

struct ProgressWord {
  std::string way;
  bool has_thread = false;
  ProgressThread::Settings thread = {};

  /// For as long as it is held; null: tasks move messages.
  std::unique_ptr<ProgressThread> start() const {
    return has_thread ? std::make_unique<ProgressThread>(thread) : nullptr;
  }
};

inline ProgressWord progress_word(const std::string& word) {
  const std::size_t plus = word.find('+');
  if (plus == std::string::npos) return {word};
  ProgressWord read{word.substr(0, plus), true};
  const std::string thread = word.substr(plus + 1);
  if (thread == "thread") return read;
  int processor = 0;
  const auto [end, error] = std::from_chars(thread.data(), thread.data() + thread.size(), processor);
  if (error != std::errc() || end != thread.data() + thread.size())
    throw std::invalid_argument("--overlap " + word + ": behind + stands thread, or its processor");
  read.thread.processor = processor;
  return read;
}

}  // namespace moeloom::bench
