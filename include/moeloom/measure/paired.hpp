// Timing that a noisy machine cannot fool: every sample is a round in which the peak and all contenders take
// their turn, and what is reported is the median of ratios within a round.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace moeloom::bench {

struct Percentiles {
  double p10 = 0, median = 0, p90 = 0;
};
Percentiles percentiles(std::vector<double> values);

/// Seconds of one call, the mean over `repeats`.
double seconds_of(const std::function<void()>& work, int repeats);
/// So often that a sample lasts `seconds`; its first call warms caches and pages.
int repeats_for(const std::function<void()>& work, double seconds = 4e-3);

struct Contender {
  std::string name;
  std::function<void()> work;
};

struct Standing {
  double gflops = 0;     // median
  Percentiles fraction;  // of the peak measured before and after it
  Percentiles lead;      // the first contender's speed over this one's, in the same round
};

struct Contest {
  double peak_gflops = 0;
  std::vector<Standing> standings;  // a contender each
};
/// All do the same `flops`. `peak` gives GFLOP/s over so many seconds, with as many busy threads as the
/// contenders use: half as long as a contender before it, and half as long after it.
Contest compete(const std::vector<Contender>& contenders, double flops,
                const std::function<double(double seconds)>& peak, int samples);

/// "commit 0123abc, threads 1, AMD EPYC", for the head of a table.
std::string environment_line(int threads);
/// The short hash of the working directory's repository, "unknown" outside one.
std::string commit_text();

}  // namespace moeloom::bench
