// The door of every function of moeloom.h: exceptions become a status and a text, threads are those that were
// asked for, and a process that forked is refused.
#pragma once

#include "moeloom/base/errors.hpp"
#include "moeloom/base/index.hpp"
#include "moeloom/c/moeloom.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace moeloom::c {

/// What no class of the library says.
class Refusal : public Error {
 public:
  Refusal(ml_status status, const std::string& text) : Error(text), status_(status) {}
  ml_status status() const { return status_; }

 private:
  ml_status status_;
};

/// Within a catch: the text is kept for ml_last_error().
ml_status keep_failure() noexcept;
const char* last_failure() noexcept;

/// Threads of every call; 0: OpenMP's.
void choose_threads(Index threads);

/// While one lives, the calling thread's loops have the threads that were chosen. Throws Refusal in a process
/// that was forked from one that computed.
class Entry {
 public:
  Entry();
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  int before_ = 0;  // 0: nothing was changed
};

/// Whether this process was forked from one that computed.
bool is_forked() noexcept;

/// A handle ends; that of a forked process is left alone, because its end would speak to ranks and threads of
/// another.
template <typename Handle>
void close(Handle* handle) noexcept {
  if (is_forked()) return;
  const std::unique_ptr<Handle> ends(handle);
}

/// What is only asked, and computes nothing: a process may fork after it.
template <typename Body>
ml_status answered(Body&& body) noexcept {
  try {
    body();
    return ML_OK;
  } catch (...) {
    return keep_failure();
  }
}

template <typename Body>
ml_status guarded(Body&& body) noexcept {
  return answered([&] {
    const Entry entry;
    body();
  });
}

/// That of a handle, while one lives; throws Refusal if another thread has it.
class Use {
 public:
  static constexpr const char* kOfHandle =
      "the handle is used by another thread; each thread needs one of its own";
  explicit Use(std::atomic<bool>& busy, const char* refusal = kOfHandle) : busy_(busy) {
    if (busy_.exchange(true)) throw Refusal(ML_IN_USE, refusal);
  }
  ~Use() { busy_ = false; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  std::atomic<bool>& busy_;
};

/// A caller's mistake where not holds; text() is made then alone. No line of ours in it: it is told to a
/// program that has none of them.
template <typename Text>
void check(bool holds, Text&& text) {
  if (!holds) throw ShapeError(text());
}

template <typename T>
T& given(T* pointer, const char* name) {
  check(pointer != nullptr, [&] { return std::string(name) + " is NULL"; });
  return *pointer;
}

/// A struct as this library knows it: what the caller's lacks is 0.
template <typename Settings>
Settings known_part(const Settings* settings, const char* name) {
  Settings known{};
  const std::int64_t size = given(settings, name).size;
  check(size >= Index{sizeof(Index)},
        [&] { return std::string("the size of ") + name + " must be its sizeof"; });
  std::memcpy(&known, settings, std::min(at(size), sizeof(Settings)));
  return known;
}

/// Cut to size - 1 bytes.
inline void write_text(std::string_view text, char* target, Index size) {
  check(target != nullptr && size > 0, [] { return "a text needs memory of at least one byte"; });
  std::snprintf(target, at(size), "%.*s", static_cast<int>(text.size()), text.data());
}

}  // namespace moeloom::c
