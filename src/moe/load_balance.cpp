#include "moe/load_balance.hpp"

#include "moeloom/base/statistics.hpp"

#include <algorithm>

namespace moeloom {

LoadBalance load_balance(const std::vector<Index>& rows_per_expert) {
  LoadBalance balance{.cv = coefficient_of_variation(rows_per_expert),
                      .fullest_over_mean = max_over_mean(rows_per_expert),
                      .gini = gini(rows_per_expert)};
  if (balance.fullest_over_mean > 0) balance.dead_experts = std::ranges::count(rows_per_expert, Index{0});
  return balance;
}

}  // namespace moeloom
