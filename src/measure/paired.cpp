#include "moeloom/measure/paired.hpp"

#include <algorithm>
#include <chrono>

namespace moeloom {

double seconds_of(const std::function<void()>& work, int repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats;
}

int repeats_for(const std::function<void()>& work, double seconds) {
  work();
  return static_cast<int>(std::clamp(seconds / seconds_of(work), 1.0, 1e4));
}

double slowest_seconds(const Communicator& comm, const std::function<void()>& work, int repeats) {
  comm.barrier();
  return comm.all_max(seconds_of(work, repeats));
}

int slowest_repeats(const Communicator& comm, const std::function<void()>& work, double seconds) {
  work();
  return static_cast<int>(std::clamp(seconds / slowest_seconds(comm, work, 2), 1.0, 1e4));
}

std::vector<Samples> take_turns(std::size_t contenders, int rounds,
                                const std::function<double(std::size_t)>& sample) {
  std::vector<Samples> samples(contenders);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < contenders; ++i) samples[i].push_back(sample(i));
  return samples;
}

Samples ratios(const Samples& of, const Samples& over) {
  Samples ratios(of.size());
  std::ranges::transform(of, over, ratios.begin(), std::divides<>());
  return ratios;
}

BesidePeak beside_peak(const std::function<double(double seconds)>& peak, double usually,
                       const std::function<double()>& step) {
  const double before = peak(usually / 2);
  const double seconds = step();
  return {seconds, (before + peak(usually / 2)) / 2};
}

Contest compete(const std::vector<Contender>& contenders, double flops,
                const std::function<double(double seconds)>& peak, int rounds) {
  const std::size_t n = contenders.size();
  std::vector<int> repeats;
  double longest = 0;
  for (const Contender& each : contenders) {
    repeats.push_back(repeats_for(each.work));
    longest = std::max(longest, seconds_of(each.work) * repeats.back());
  }
  Samples peaks;
  std::vector<Samples> fractions(n);
  const std::vector<Samples> seconds = take_turns(n, rounds, [&](std::size_t i) {
    const auto step = [&] { return seconds_of(contenders[i].work, repeats[i]); };
    const BesidePeak sample = beside_peak(peak, longest, step);
    peaks.push_back(sample.gflops);
    fractions[i].push_back(1e-9 * flops / sample.seconds / sample.gflops);
    return sample.seconds;
  });
  Contest contest{median(peaks), {}};
  for (std::size_t i = 0; i < n; ++i)
    contest.standings.push_back({1e-9 * flops / median(seconds[i]), spread_of(fractions[i]),
                                 spread_of(ratios(seconds[i], seconds[0]))});
  return contest;
}

}  // namespace moeloom
