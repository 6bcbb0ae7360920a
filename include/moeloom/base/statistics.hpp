// What is said of several measured values: the middle one, how far the others lie around it, how uneven they
// are. No collective: of the values that are given.
#pragma once

#include "moeloom/base/index.hpp"

#include <span>
#include <vector>

namespace moeloom {

/// The values at 10, 50 and 90 % of the way through their sorted list, at the nearest place, so that each is
/// one of them.
struct Spread {
  double p10 = 0;
  double median = 0;
  double p90 = 0;
};
/// Values that are not finite do not count; NaN three times if none is left.
Spread spread_of(std::vector<double> values);
/// Spread::median of spread_of(values).
double median(std::vector<double> values);

/// The largest of several counts over their mean, 1 for equal ones; 0 if they are all 0, or there is none.
/// Here and below: counts >= 0.
double max_over_mean(const std::vector<Index>& counts);

/// Standard deviation of all n counts (over n, not n - 1) over their mean, from 0 for equal ones to sqrt(n -
/// 1) for one that has everything; its square is the load loss of Shazeer et al. 2017, eq. 11. 0 if they are
/// all 0, or there is none.
double coefficient_of_variation(std::span<const Index> counts);

/// Half the mean absolute difference of two counts over their mean (Gini 1912): sum_i (2 i - n - 1) x_i / (n
/// sum_i x_i) of x_1 <= ... <= x_n, from 0 for equal counts to 1 - 1/n for one that has everything. 0 if they
/// are all 0, or there is none.
double gini(std::span<const Index> counts);

}  // namespace moeloom
