#include "kernels/elementwise/score_rows.hpp"
#include "moe/routing/router.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/rounded_math.hpp"

#include <algorithm>

#include "routing/token_weights.hpp"

namespace moeloom {
namespace {

constexpr Index kTokensPerTask = 64;

/// d: gradient of each score -> of its logit. sqrt(softplus(x)) has sigmoid(x) / (2 s), and sigmoid(x) =
/// 1 - exp(-s^2).
void each_score_backward(RouterScore score, const float* scores, Index n, float* d) {
  if (score == RouterScore::kSigmoid) return sigmoid_scores_backward(scores, n, d);
  for (Index e = 0; e < n; ++e) {
    const float s = scores[e];
    d[e] *= s > 0 ? -expm1_of(-s * s) / (2 * s) : 0.0f;
  }
}

/// Through score_by_weights(): d_weights [K] += of a token with the gradient d_probability [E] of its scores.
void balance_weights_backward(const Routing& routing, Index token, const float* d_probability,
                              std::span<float> d_weights) {
  const float* scores = routing.scores.row(token);
  float mean = 0;
  for (Index e = 0; e < routing.scores.cols(); ++e) mean += scores[e] * d_probability[e];
  for (std::size_t j = 0; j < d_weights.size(); ++j)
    if (const std::int32_t e = routing.topk_idx[at(token) * d_weights.size() + j]; e != kNoExpert)
      d_weights[j] += scores[e] * (d_probability[e] - mean);
}

bool counts(std::span<const std::uint8_t> is_real, Index token) {
  return is_real.empty() || is_real[at(token)] != 0;
}

}  // namespace

void route_backward(const Routing& routing, const RouterSettings& settings,
                    std::span<const float> d_topk_weights, const RouterLossGradient& losses,
                    std::span<const std::uint8_t> is_real, MatrixView d_logits) {
  const Index k = routing.top_k;
  const Index experts = settings.num_experts;
  const bool softmaxed = settings.score == RouterScore::kSoftmax;
  require(d_logits.rows == routing.tokens() && d_logits.cols == experts,
          "d_logits must be [tokens, num_experts]");
  require(static_cast<Index>(d_topk_weights.size()) == routing.tokens() * k,
          "d_topk_weights must be [tokens, top_k]");
  require(softmaxed || losses.d_log_sum_exp == 0, "only softmax routers have a z loss");
  const bool by_weights = settings.balance_by == BalanceBy::kWeights;
  require(!by_weights || losses.d_log_sum_exp == 0, "routers balanced by their weights have no z loss");
  parallel_blocks(routing.tokens(), kTokensPerTask, [&](Index begin, Index end) {
    std::vector<float> d_direct(settings.weigh_by == WeighBy::kScore ? 0 : at(experts));
    std::vector<float> d_weights(at(k)), d_balance(at(routing.balance_scores.rows() > 0 ? experts : 0));
    for (Index t = begin; t < end; ++t) {
      const float* scores = routing.scores.row(t);
      float* d = d_logits.row(t);
      const bool counted = counts(is_real, t);
      const float* d_probability = nullptr;
      if (!losses.d_probability.empty() && counted)
        d_probability = losses.d_probability.data() +
                        (losses.tokens_per_row > 0 ? t / losses.tokens_per_row : 0) * experts;
      std::copy_n(d_topk_weights.data() + t * k, k, d_weights.data());
      const bool balanced_apart = !d_balance.empty() && d_probability != nullptr;
      if (balanced_apart) {
        const float* softmaxes = routing.balance_scores.row(t);
        std::copy_n(d_probability, experts, d_balance.data());
        softmax_scores_backward(softmaxes, experts, 0, d_balance.data());
        d_probability = nullptr;
      }
      if (by_weights && d_probability != nullptr) {
        balance_weights_backward(routing, t, d_probability, d_weights);
        d_probability = nullptr;
      }
      if (d_probability != nullptr && softmaxed) {
        std::copy_n(d_probability, experts, d);
      } else {
        std::fill_n(d, experts, 0.0f);
      }
      std::ranges::fill(d_direct, 0.0f);
      weigh_backward(routing, settings, t, d_weights.data(), d, d_direct.data());
      if (by_weights) {
        std::fill_n(d, experts, 0.0f);  // scores are not of the logits
      } else if (softmaxed) {
        softmax_scores_backward(scores, experts,
                                counted ? losses.d_log_sum_exp * routing.log_sum_exp[at(t)] : 0.0f, d);
      } else {
        if (d_probability != nullptr) probability_backward(scores, d_probability, experts, d);
        each_score_backward(settings.score, scores, experts, d);
      }
      for (std::size_t e = 0; e < d_direct.size(); ++e) d[e] += d_direct[e];
      if (!balanced_apart) continue;
      for (std::size_t e = 0; e < d_balance.size(); ++e) d[e] += d_balance[e];
    }
  });
}

// w_j = scaling_factor * expert_scale * u_j.
void expert_scale_backward(const Routing& routing, const RouterSettings& settings,
                           std::span<const float> d_topk_weights, const Stretch& tokens,
                           std::span<float> d_expert_scale) {
  const Index k = routing.top_k;
  for (Index t = tokens.begin; t < tokens.end; ++t) {
    const auto values = std::span(routing.topk_values).subspan(at(t * k), at(k));
    float sum = 0;
    for (const float value : values) sum += value;
    const float divided = divisor(settings.divide, sum);
    for (Index j = 0; j < k; ++j)
      if (const std::int32_t e = routing.topk_idx[at(t * k + j)]; e != kNoExpert)
        d_expert_scale[at(e)] +=
            d_topk_weights[at(t * k + j)] * settings.scaling_factor * (values[at(j)] / divided);
  }
}

}  // namespace moeloom
