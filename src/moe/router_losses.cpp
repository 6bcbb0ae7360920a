#include "moeloom/moe/router_losses.hpp"

#include <algorithm>

namespace moeloom {

RouterStatistics::RouterStatistics(Index num_experts)
    : tokens_per_expert(at(num_experts)), probability_sum(at(num_experts)) {}

void RouterStatistics::add(const Routing& routing, Index top_k, std::span<const std::uint8_t> is_real) {
  for (Index t = 0; t < routing.tokens(); ++t) {
    if (!is_real.empty() && is_real[at(t)] == 0) continue;
    for (Index j = 0; j < top_k; ++j) ++tokens_per_expert[at(routing.topk_idx[at(t * top_k + j)])];
    ++tokens;
    if (routing.log_sum_exp.empty()) continue;
    const float* probabilities = routing.scores.row(t);
    for (std::size_t e = 0; e < probability_sum.size(); ++e) probability_sum[e] += probabilities[e];
    const double lse = routing.log_sum_exp[at(t)];
    squared_log_sum_exp += lse * lse;
  }
}

void RouterStatistics::sum_over(const Communicator& world) {
  std::vector<std::int64_t> integers = tokens_per_expert;
  integers.push_back(tokens);
  world.all_sum(integers);
  tokens = integers.back();
  std::copy_n(integers.begin(), tokens_per_expert.size(), tokens_per_expert.begin());
  std::vector<double> reals = probability_sum;
  reals.push_back(squared_log_sum_exp);
  world.all_sum(reals);
  squared_log_sum_exp = reals.back();
  std::copy_n(reals.begin(), probability_sum.size(), probability_sum.begin());
}

double RouterStatistics::aux_loss() const {
  if (tokens == 0) return 0;
  const auto n = static_cast<double>(tokens);
  double sum = 0;
  for (std::size_t e = 0; e < probability_sum.size(); ++e)
    sum += static_cast<double>(tokens_per_expert[e]) / n * (probability_sum[e] / n);
  return static_cast<double>(probability_sum.size()) * sum;
}

double RouterStatistics::z_loss() const {
  return tokens == 0 ? 0 : squared_log_sum_exp / static_cast<double>(tokens);
}

RouterLossGradient router_loss_gradient(const RouterStatistics& global, double aux_scale, double z_scale) {
  RouterLossGradient gradient;
  if (global.tokens == 0 || (aux_scale == 0 && z_scale == 0)) return gradient;
  const auto n = static_cast<double>(global.tokens);
  const auto experts = static_cast<double>(global.tokens_per_expert.size());
  for (const std::int64_t count : global.tokens_per_expert)
    gradient.d_probability.push_back(
        static_cast<float>(aux_scale * experts * static_cast<double>(count) / (n * n)));
  gradient.d_log_sum_exp = static_cast<float>(2 * z_scale / n);
  return gradient;
}

}  // namespace moeloom
