#include "report/columns.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>

namespace moeloom {

double kept(const std::vector<double>& values, Keep keep) {
  if (keep == Keep::kLast && !values.empty()) return values.back();
  std::vector<double> known;
  std::ranges::copy_if(values, std::back_inserter(known), [](double value) { return std::isfinite(value); });
  if (known.empty()) return std::numeric_limits<double>::quiet_NaN();
  if (keep == Keep::kLeast) return std::ranges::min(known);
  if (keep == Keep::kLargest) return std::ranges::max(known);
  return std::reduce(known.begin(), known.end()) / static_cast<double>(known.size());
}

std::vector<double> thinned(const std::vector<double>& values, std::size_t most, Keep keep) {
  const std::size_t count = std::min(values.size(), most);
  const auto begin_of = [&](std::size_t i) {
    return values.begin() + static_cast<std::ptrdiff_t>(i * values.size() / count);
  };
  std::vector<double> thin;
  for (std::size_t i = 0; i < count; ++i) thin.push_back(kept({begin_of(i), begin_of(i + 1)}, keep));
  return thin;
}

std::vector<double> rounded(std::vector<double> values, int digits) {
  std::array<char, 64> text{};
  for (double& value : values) {
    std::snprintf(text.data(), text.size(), "%.*g", digits, value);
    value = std::strtod(text.data(), nullptr);
  }
  return values;
}

}  // namespace moeloom
