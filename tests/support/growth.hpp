// How the time of something grows with its input, so that a test can tell n from n * n on any machine.
#pragma once

#include "moeloom/base/index.hpp"

#include <algorithm>
#include <ctime>

namespace moeloom::testing {

/// Seconds of this thread's processor that `action` takes, the least of three.
template <typename Action>
double processor_seconds(const Action& action) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double least = 1e300;
  for (int i = 0; i < 3; ++i) {
    const double begin = now();
    action();
    least = std::min(least, now() - begin);
  }
  return least;
}

/// How many times longer use(input_of(8 * size)) takes than use(input_of(size)): 8 where time is linear, 64
/// where it is quadratic. What is below kMostLinearGrowth is the former, with trees and caches allowed for.
inline constexpr double kMostLinearGrowth = 24;
template <typename InputOf, typename Use>
double growth_of_time(Index size, const InputOf& input_of, const Use& use) {
  const auto seconds = [&](Index n) {
    const auto input = input_of(n);
    return processor_seconds([&] { use(input); });
  };
  const double small = seconds(size);
  return seconds(8 * size) / small;
}

}  // namespace moeloom::testing
