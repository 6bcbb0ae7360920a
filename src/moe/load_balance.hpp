// How evenly a layer's rows lie on its experts: the figures that are shown of a step.
#pragma once

#include "moeloom/base/index.hpp"

#include <vector>

namespace moeloom {

/// Zeros where a layer is dense or had no row: nothing is known of such a step.
struct LoadBalance {
  double cv = 0;                 // coefficient_of_variation
  double fullest_over_mean = 0;  // from 1 to E / K, because a token visits an expert once at most
  double gini = 0;
  Index dead_experts = 0;  // without a row
};

/// rows_per_expert [E] of one layer, of as many ranks and micro-batches as one asks about.
LoadBalance load_balance(const std::vector<Index>& rows_per_expert);

}  // namespace moeloom
