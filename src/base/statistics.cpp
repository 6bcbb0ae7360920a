#include "moeloom/base/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace moeloom {

Spread spread_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  std::ranges::sort(values);
  const auto at_share = [&](double share) {
    if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
    return values[static_cast<std::size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  return {at_share(0.1), at_share(0.5), at_share(0.9)};
}

double median(std::vector<double> values) {
  return spread_of(std::move(values)).median;
}

double max_over_mean(const std::vector<Index>& counts) {
  const Index total = std::reduce(counts.begin(), counts.end(), Index{0});
  if (total == 0) return 0;
  return static_cast<double>(std::ranges::max(counts)) * static_cast<double>(counts.size()) /
         static_cast<double>(total);
}

double coefficient_of_variation(std::span<const Index> counts) {
  const Index total = std::reduce(counts.begin(), counts.end(), Index{0});
  if (total == 0) return 0;
  const auto n = static_cast<double>(counts.size());
  const double mean = static_cast<double>(total) / n;
  double squares = 0;
  for (const Index count : counts) {
    const double off = static_cast<double>(count) - mean;
    squares += off * off;
  }
  return std::sqrt(squares / n) / mean;
}

double gini(std::span<const Index> counts) {
  const Index total = std::reduce(counts.begin(), counts.end(), Index{0});
  if (total == 0) return 0;
  std::vector<Index> rising(counts.begin(), counts.end());
  std::ranges::sort(rising);
  const Index n = std::ssize(rising);
  Index weighed = 0;
  for (Index i = 0; i < n; ++i) weighed += (2 * i + 1 - n) * rising[static_cast<std::size_t>(i)];
  return static_cast<double>(weighed) / (static_cast<double>(n) * static_cast<double>(total));
}

}  // namespace moeloom
