#include "guard.hpp"

#include "moeloom/base/parallel.hpp"

#include <array>
#include <new>
#include <system_error>
#include <typeinfo>
#include <unistd.h>

namespace moeloom::c {
namespace {

std::array<char, 8192>& failure() {
  static thread_local std::array<char, 8192> text{};
  return text;
}

/// Without the line of ours that found it, " (file.cpp:12)": a caller has none of them.
ml_status keep(ml_status status, std::string_view text) {
  if (const std::size_t place = text.rfind(" ("); text.ends_with(')') && place != text.npos)
    if (text.find(".cpp:", place) != text.npos) text = text.substr(0, place);
  const std::size_t length = text.copy(failure().data(), failure().size() - 1);
  failure()[length] = 0;
  return status;
}

ml_status status_of(Cause cause) {
  switch (cause) {
    case Cause::kRequest:
      return ML_CONFIG;
    case Cause::kData:
      return ML_IO;
    case Cause::kDisk:
      return ML_DISK;
    case Cause::kMpi:
      return ML_MPI;
    case Cause::kCorrupt:
      return ML_CORRUPT;
  }
  return ML_OTHER;
}

std::atomic<int>& chosen_threads() {
  static std::atomic<int> threads = 0;
  return threads;
}

/// The process that computed first; 0: none yet.
std::atomic<pid_t>& first_process() {
  static std::atomic<pid_t> first = 0;
  return first;
}

void refuse_after_fork() {
  pid_t none = 0;
  if (first_process().compare_exchange_strong(none, ::getpid()) || !is_forked()) return;
  throw Refusal(ML_OTHER,
                "process " + std::to_string(::getpid()) + " was forked from " +
                    std::to_string(first_process()) +
                    ", whose threads and ranks it does not have; compute there, or start processes by "
                    "spawn");
}

}  // namespace

ml_status keep_failure() noexcept {
  try {
    throw;
  } catch (const Refusal& error) {
    return keep(error.status(), error.what());
  } catch (const ShapeError& error) {
    return keep(ML_SHAPE, error.what());
  } catch (const Error& error) {
    const bool is_plain = typeid(error) == typeid(Error);
    return keep(is_plain ? ML_OTHER : status_of(cause_of(error)), error.what());
  } catch (const std::bad_alloc&) {
    return keep(ML_MEMORY, "there is no memory left");
  } catch (const std::system_error& error) {
    return keep(ML_IO, error.what());
  } catch (const std::exception& error) {
    return keep(ML_OTHER, error.what());
  } catch (...) {
    return keep(ML_OTHER, "an unknown error");
  }
}

bool is_forked() noexcept {
  const pid_t first = first_process();
  return first != 0 && first != ::getpid();
}

const char* last_failure() noexcept {
  return failure().data();
}

void choose_threads(Index threads) {
  constexpr Index kMost = 4096;
  check(threads >= 0 && threads <= kMost,
        [] { return "threads go from 0, which stands for OpenMP's number, to 4096"; });
  chosen_threads() = static_cast<int>(threads);
}

Entry::Entry() {
  refuse_after_fork();
  const int wanted = chosen_threads(), now = threads();
  if (wanted == 0 || wanted == now) return;
  set_threads(wanted);
  before_ = now;
}

Entry::~Entry() {
  if (before_ > 0) set_threads(before_);
}

}  // namespace moeloom::c
