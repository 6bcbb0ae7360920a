// Timing that a noisy machine cannot fool: every sample is a round in which all contenders take their turn,
// and what is reported is the median of ratios within a round.
#pragma once

#include "moeloom/base/statistics.hpp"
#include "moeloom/comm/communicator.hpp"

#include <functional>
#include <string>
#include <vector>

namespace moeloom {

/// Seconds of one call, the mean over `repeats`.
double seconds_of(const std::function<void()>& work, int repeats = 1);
/// So often that a sample lasts `seconds`; its first call warms caches and pages.
int repeats_for(const std::function<void()>& work, double seconds = 4e-3);

/// The same of the slowest rank, from when all are ready. Collective.
double slowest_seconds(const Communicator& comm, const std::function<void()>& work, int repeats = 1);
int slowest_repeats(const Communicator& comm, const std::function<void()>& work, double seconds = 4e-3);

/// Of one contender, a round each.
using Samples = std::vector<double>;
/// sample(contender) of each in turn, so many rounds.
std::vector<Samples> take_turns(std::size_t contenders, int rounds,
                                const std::function<double(std::size_t)>& sample);
/// Round by round.
Samples ratios(const Samples& of, const Samples& over);

/// Runs `step`, which gives its seconds, between two measurements of a peak, each half as long as `usually`.
struct BesidePeak {
  double seconds = 0;
  double gflops = 0;  // the peak, mean of before and after
};
BesidePeak beside_peak(const std::function<double(double seconds)>& peak, double usually,
                       const std::function<double()>& step);

struct Contender {
  std::string name;
  std::function<void()> work;
};

struct Standing {
  double gflops = 0;  // median
  Spread fraction;    // of the peak measured before and after it
  Spread lead;        // the first contender's speed over this one's, in the same round
};

struct Contest {
  double peak_gflops = 0;
  std::vector<Standing> standings;  // a contender each
};
/// All do the same `flops`. `peak` gives GFLOP/s over so many seconds, with as many busy threads as the
/// contenders use.
Contest compete(const std::vector<Contender>& contenders, double flops,
                const std::function<double(double seconds)>& peak, int rounds);

}  // namespace moeloom
