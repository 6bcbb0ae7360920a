#include "moeloom/moe/router.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace moeloom {
namespace {

constexpr Index kTokensPerTask = 64;

/// probabilities of one token in place over its logits' copy; returns log(sum(exp(logits))).
float softmax(const float* logits, Index n, float* probabilities) {
  const float largest = *std::max_element(logits, logits + n);
  float sum = 0;
  for (Index e = 0; e < n; ++e) sum += probabilities[e] = std::exp(logits[e] - largest);
  for (Index e = 0; e < n; ++e) probabilities[e] /= sum;
  return largest + std::log(sum);
}

/// The k largest by falling value; K is small, so one insertion pass over the experts beats a sort.
void choose_largest(const float* values, Index n, Index k, std::int32_t* chosen) {
  Index held = 0;
  for (Index e = 0; e < n; ++e) {
    if (held == k && values[e] <= values[chosen[k - 1]]) continue;
    Index place = held < k ? held++ : k - 1;
    for (; place > 0 && values[chosen[place - 1]] < values[e]; --place) chosen[place] = chosen[place - 1];
    chosen[place] = static_cast<std::int32_t>(e);
  }
}

void weigh(const float* probabilities, std::span<const std::int32_t> chosen, bool normalise, float* weights) {
  float sum = 0;
  for (std::size_t j = 0; j < chosen.size(); ++j) sum += weights[j] = probabilities[chosen[j]];
  if (!normalise) return;
  for (std::size_t j = 0; j < chosen.size(); ++j) weights[j] /= sum;
}

bool counts(std::span<const std::uint8_t> is_real, Index token) {
  return is_real.empty() || is_real[at(token)] != 0;
}

}  // namespace

void route(ConstMatrixView logits, const RouterSettings& settings, Routing& routing) {
  const Index experts = settings.num_experts;
  const Index k = settings.top_k;
  require(logits.cols == experts, "router logits need one column an expert");
  require(k >= 1 && k <= experts, "top_k must lie in [1, num_experts]");
  routing.probabilities.reshape_uninitialised(logits.rows, experts);
  routing.log_sum_exp.resize(at(logits.rows));
  routing.topk_idx.resize(at(logits.rows * k));
  routing.topk_weights.resize(at(logits.rows * k));
  parallel_blocks(logits.rows, kTokensPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      float* probabilities = routing.probabilities.row(t);
      std::int32_t* chosen = routing.topk_idx.data() + t * k;
      routing.log_sum_exp[at(t)] = softmax(logits.row(t), experts, probabilities);
      choose_largest(probabilities, experts, k, chosen);
      weigh(probabilities, {chosen, at(k)}, settings.norm_topk_prob, routing.topk_weights.data() + t * k);
    }
  });
}

RouterStatistics::RouterStatistics(Index num_experts)
    : tokens_per_expert(at(num_experts)), probability_sum(at(num_experts)) {}

void RouterStatistics::add(const Routing& routing, Index top_k, std::span<const std::uint8_t> is_real) {
  for (Index t = 0; t < routing.tokens(); ++t) {
    if (!counts(is_real, t)) continue;
    for (Index j = 0; j < top_k; ++j) ++tokens_per_expert[at(routing.topk_idx[at(t * top_k + j)])];
    const float* probabilities = routing.probabilities.row(t);
    for (std::size_t e = 0; e < probability_sum.size(); ++e) probability_sum[e] += probabilities[e];
    const double lse = routing.log_sum_exp[at(t)];
    squared_log_sum_exp += lse * lse;
    ++tokens;
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

void route_backward(const Routing& routing, const RouterSettings& settings,
                    std::span<const float> d_topk_weights, const RouterLossGradient& losses,
                    std::span<const std::uint8_t> is_real, MatrixView d_logits) {
  const Index k = settings.top_k;
  require(d_logits.rows == routing.tokens() && d_logits.cols == settings.num_experts,
          "d_logits must be [tokens, num_experts]");
  require(static_cast<Index>(d_topk_weights.size()) == routing.tokens() * k,
          "d_topk_weights must be [tokens, top_k]");
  parallel_blocks(routing.tokens(), kTokensPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      const float* p = routing.probabilities.row(t);
      const std::int32_t* chosen = routing.topk_idx.data() + t * k;
      const float* w = routing.topk_weights.data() + t * k;
      const float* dw = d_topk_weights.data() + t * k;
      float* d = d_logits.row(t);
      const bool with_losses = !losses.d_probability.empty() && counts(is_real, t);
      for (Index e = 0; e < d_logits.cols; ++e) d[e] = with_losses ? losses.d_probability[at(e)] : 0.0f;
      float chosen_sum = 1;
      float along = 0;  // w_j = p_j / s: d p_j = (dw_j - sum_i dw_i w_i) / s
      if (settings.norm_topk_prob) {
        chosen_sum = 0;
        for (Index j = 0; j < k; ++j) chosen_sum += p[chosen[j]];
        for (Index j = 0; j < k; ++j) along += dw[j] * w[j];
      }
      for (Index j = 0; j < k; ++j) d[chosen[j]] += (dw[j] - along) / chosen_sum;
      float mean = 0;
      for (Index e = 0; e < d_logits.cols; ++e) mean += p[e] * d[e];
      const float z = with_losses ? losses.d_log_sum_exp * routing.log_sum_exp[at(t)] : 0.0f;
      for (Index e = 0; e < d_logits.cols; ++e) d[e] = p[e] * (d[e] - mean + z);
    }
  });
}

}  // namespace moeloom
