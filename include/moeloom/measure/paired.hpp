// Timing that a noisy machine cannot fool: every sample is a round in which all contenders take their turn,
// and what is reported is the median of ratios within a round. What `work` throws comes out; functions that
// take a communicator are collective over it, the others of this rank alone.
#pragma once

#include "moeloom/base/statistics.hpp"
#include "moeloom/comm/communicator.hpp"

#include <functional>
#include <string>
#include <vector>

namespace moeloom {

/// Seconds of one call by a clock that never goes back, the mean over `repeats` (at least 1).
double seconds_of(const std::function<void()>& work, int repeats = 1);
/// How many calls last `seconds`, from 1 to 10,000, after two calls: the first warms caches and pages.
int repeats_for(const std::function<void()>& work, double seconds = 4e-3);

/// seconds_of() and repeats_for() of the slowest rank, measured from when all are ready: the same result on
/// every rank, with the same `repeats` on each. Collective over comm; `work` may be collective too.
double slowest_seconds(const Communicator& comm, const std::function<void()>& work, int repeats = 1);
int slowest_repeats(const Communicator& comm, const std::function<void()>& work, double seconds = 4e-3);

/// Of one contender, a number for each round.
using Samples = std::vector<double>;
/// sample(contender), contender in [0, contenders), of each in turn, `rounds` times -> a list for each
/// contender.
std::vector<Samples> take_turns(std::size_t contenders, int rounds,
                                const std::function<double(std::size_t)>& sample);
/// of[i] / over[i], round by round; both as long.
Samples ratios(const Samples& of, const Samples& over);

/// What `step` took, and the peak of the machine around it.
struct BesidePeak {
  double seconds = 0;
  double gflops = 0;  // the peak in GFLOP/s, mean of before and after
};
/// Runs `step`, which returns its seconds, between two measurements of a peak, each `usually` / 2 seconds
/// long. peak(seconds) measures for so long and returns GFLOP/s, as fma_peak_gflops().
BesidePeak beside_peak(const std::function<double(double seconds)>& peak, double usually,
                       const std::function<double()>& step);

/// A way to do some work, and its name.
struct Contender {
  std::string name;
  std::function<void()> work;
};

/// How one contender did, over all rounds.
struct Standing {
  double gflops = 0;  // GFLOP/s, of the median time
  Spread fraction;    // of the peak measured before and after it
  Spread lead;        // the first contender's speed over this one's, in the same round
};

/// How all did.
struct Contest {
  double peak_gflops = 0;           // median
  std::vector<Standing> standings;  // one for each contender, in order
};
/// Lets contenders, at least one, do the same work of `flops` floating-point operations a call. `peak`
/// returns GFLOP/s over so many seconds, with as many busy threads as the contenders use. Of this rank alone.
Contest compete(const std::vector<Contender>& contenders, double flops,
                const std::function<double(double seconds)>& peak, int rounds);

}  // namespace moeloom
