#include "moeloom/measure/paired.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>

namespace moeloom::bench {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

}  // namespace

Percentiles percentiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
  };
  return {at(0.1), at(0.5), at(0.9)};
}

double seconds_of(const std::function<void()>& work, int repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats;
}

int repeats_for(const std::function<void()>& work, double seconds) {
  work();
  return static_cast<int>(std::clamp(seconds / seconds_of(work, 1), 1.0, 1e4));
}

Contest compete(const std::vector<Contender>& contenders, double flops,
                const std::function<double(double seconds)>& peak, int samples) {
  const std::size_t n = contenders.size();
  std::vector<int> repeats;
  double half_sample = 0;
  for (const Contender& each : contenders) {
    repeats.push_back(repeats_for(each.work));
    half_sample = std::max(half_sample, seconds_of(each.work, 1) * repeats.back() / 2);
  }
  std::vector<double> peaks;
  std::vector<std::vector<double>> gflops(n), fraction(n), lead(n);
  for (int sample = 0; sample < samples; ++sample) {
    double before = peak(half_sample);
    for (std::size_t i = 0; i < n; ++i) {
      gflops[i].push_back(1e-9 * flops / seconds_of(contenders[i].work, repeats[i]));
      const double after = peak(half_sample);
      peaks.push_back((before + after) / 2);
      fraction[i].push_back(gflops[i].back() / peaks.back());
      lead[i].push_back(gflops[0].back() / gflops[i].back());
      before = after;
    }
  }
  Contest contest{percentiles(peaks).median, {}};
  for (std::size_t i = 0; i < n; ++i)
    contest.standings.push_back(
        {percentiles(gflops[i]).median, percentiles(fraction[i]), percentiles(lead[i])});
  return contest;
}

std::string commit_text() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen("git rev-parse --short HEAD 2>/dev/null", "r"),
                                                   pclose);
  std::array<char, 64> line{};
  if (!pipe || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return "unknown";
  const std::string text = line.data();
  return text.substr(0, text.find('\n'));
}

std::string environment_line(int threads) {
  return "commit " + commit_text() + ", threads " + std::to_string(threads) + ", " + cpu_model();
}

}  // namespace moeloom::bench
