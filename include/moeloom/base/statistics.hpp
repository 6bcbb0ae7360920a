// What is said of several measured values: the middle one, how far the others lie around it, how uneven they
// are. Values that are not finite do not count.
#pragma once

#include "moeloom/base/index.hpp"

#include <vector>

namespace moeloom {

/// Nearest ranks, so that each is one of the values; NaN without any.
struct Spread {
  double p10 = 0;
  double median = 0;
  double p90 = 0;
};
Spread spread_of(std::vector<double> values);
double median(std::vector<double> values);

/// The largest of several counts over their mean; 0 if they are all 0, or none.
double max_over_mean(const std::vector<Index>& counts);

}  // namespace moeloom
