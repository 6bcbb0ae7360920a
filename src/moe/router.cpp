#include "moeloom/moe/router.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace moeloom {
namespace {

constexpr Index kTokensPerTask = 64;

/// scores of one token from its logits; returns log(sum(exp(logits))).
float softmax(const float* logits, Index n, float* scores) {
  const float largest = *std::max_element(logits, logits + n);
  float sum = 0;
  for (Index e = 0; e < n; ++e) sum += scores[e] = std::exp(logits[e] - largest);
  for (Index e = 0; e < n; ++e) scores[e] /= sum;
  return largest + std::log(sum);
}

/// One NaN becomes a row of them, as in a softmax: the choice could leave it out, and nobody would learn.
void sigmoid(const float* logits, Index n, float* scores) {
  float sum = 0;
  for (Index e = 0; e < n; ++e) sum += scores[e] = 1 / (1 + std::exp(-logits[e]));
  if (std::isnan(sum)) std::fill_n(scores, n, sum);
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

/// The choice of experts, with its memory for one token.
class Choice {
 public:
  explicit Choice(const RouterSettings& settings)
      : settings_(settings),
        values_(at(settings.num_experts)),
        worth_(at(settings.num_groups)),
        kept_(at(settings.topk_group)) {}

  void choose(const float* scores, std::int32_t* chosen) {
    const Index experts = settings_.num_experts;
    std::copy_n(scores, experts, values_.begin());
    for (std::size_t e = 0; e < settings_.correction_bias.size(); ++e)
      values_[e] += settings_.correction_bias[e];
    if (settings_.topk_group < settings_.num_groups) leave_groups_out();
    choose_largest(values_.data(), experts, settings_.top_k, chosen);
  }

 private:
  void leave_groups_out() {
    const Index size = settings_.num_experts / settings_.num_groups;
    for (Index g = 0; g < settings_.num_groups; ++g)
      worth_[at(g)] = sum_of_two_largest(values_.data() + g * size, size);
    choose_largest(worth_.data(), settings_.num_groups, settings_.topk_group, kept_.data());
    for (Index g = 0; g < settings_.num_groups; ++g)
      if (std::ranges::find(kept_, g) == kept_.end()) std::fill_n(values_.data() + g * size, size, 0.0f);
  }

  /// A group of one expert is worth what that one is.
  static float sum_of_two_largest(const float* values, Index n) {
    if (n == 1) return values[0];
    std::int32_t best[2];
    choose_largest(values, n, 2, best);
    return values[best[0]] + values[best[1]];
  }

  const RouterSettings& settings_;
  std::vector<float> values_;       // [E], compared
  std::vector<float> worth_;        // [groups]
  std::vector<std::int32_t> kept_;  // [kept groups]
};

/// What the scores of the chosen are divided by; DeepSeek's sigmoids may all be 0, a softmax's largest is
/// not.
float divisor(const RouterSettings& settings, const float* scores, const std::int32_t* chosen) {
  if (!settings.norm_topk_prob) return 1;
  float sum = 0;
  for (Index j = 0; j < settings.top_k; ++j) sum += scores[chosen[j]];
  return settings.score == RouterScore::kSigmoid ? sum + 1e-20f : sum;
}

void weigh(const RouterSettings& settings, const float* scores, const std::int32_t* chosen, float* weights) {
  const float divided = divisor(settings, scores, chosen);
  for (Index j = 0; j < settings.top_k; ++j)
    weights[j] = scores[chosen[j]] / divided * settings.scaling_factor;
}

/// d [E] += gradient of the scores: v_j = s_j / sum has d s_j = (d v_j - sum_i v_i d v_i) / sum, and w =
/// scaling * v.
void weigh_backward(const RouterSettings& settings, const float* scores, const std::int32_t* chosen,
                    const float* d_weights, float* d) {
  const float divided = divisor(settings, scores, chosen);
  float along = 0;
  if (settings.norm_topk_prob)
    for (Index j = 0; j < settings.top_k; ++j)
      along += settings.scaling_factor * d_weights[j] * (scores[chosen[j]] / divided);
  for (Index j = 0; j < settings.top_k; ++j)
    d[chosen[j]] += (settings.scaling_factor * d_weights[j] - along) / divided;
}

/// d: gradient of the probabilities p -> of the logits, d_log_sum_exp's share included.
void softmax_backward(const float* p, Index n, float d_log_sum_exp, float* d) {
  float mean = 0;
  for (Index e = 0; e < n; ++e) mean += p[e] * d[e];
  for (Index e = 0; e < n; ++e) d[e] = p[e] * (d[e] - mean + d_log_sum_exp);
}

void sigmoid_backward(const float* scores, Index n, float* d) {
  for (Index e = 0; e < n; ++e) d[e] *= scores[e] * (1 - scores[e]);
}

void check(const RouterSettings& s) {
  require(s.top_k >= 1 && s.top_k <= s.num_experts, "top_k must lie in [1, num_experts]");
  require(s.correction_bias.empty() || static_cast<Index>(s.correction_bias.size()) == s.num_experts,
          "correction_bias needs one number an expert, or none");
  require(s.num_groups >= 1 && s.num_experts % s.num_groups == 0, "num_groups must divide num_experts");
  require(s.topk_group >= 1 && s.topk_group <= s.num_groups, "topk_group must lie in [1, num_groups]");
  require(s.top_k <= s.topk_group * (s.num_experts / s.num_groups),
          "the kept groups have topk_group * num_experts / num_groups experts, fewer than top_k; raise "
          "topk_group or lower top_k");
}

bool counts(std::span<const std::uint8_t> is_real, Index token) {
  return is_real.empty() || is_real[at(token)] != 0;
}

}  // namespace

void route(ConstMatrixView logits, const RouterSettings& settings, Routing& routing) {
  const Index experts = settings.num_experts;
  const Index k = settings.top_k;
  require(logits.cols == experts, "router logits need one column an expert");
  check(settings);
  const bool softmaxed = settings.score == RouterScore::kSoftmax;
  routing.scores.reshape_uninitialised(logits.rows, experts);
  routing.log_sum_exp.resize(softmaxed ? at(logits.rows) : 0);
  routing.topk_idx.resize(at(logits.rows * k));
  routing.topk_weights.resize(at(logits.rows * k));
  parallel_blocks(logits.rows, kTokensPerTask, [&](Index begin, Index end) {
    Choice choice(settings);
    for (Index t = begin; t < end; ++t) {
      float* scores = routing.scores.row(t);
      std::int32_t* chosen = routing.topk_idx.data() + t * k;
      if (softmaxed) {
        routing.log_sum_exp[at(t)] = softmax(logits.row(t), experts, scores);
      } else {
        sigmoid(logits.row(t), experts, scores);
      }
      choice.choose(scores, chosen);
      weigh(settings, scores, chosen, routing.topk_weights.data() + t * k);
    }
  });
}

void route_backward(const Routing& routing, const RouterSettings& settings,
                    std::span<const float> d_topk_weights, const RouterLossGradient& losses,
                    std::span<const std::uint8_t> is_real, MatrixView d_logits) {
  const Index k = settings.top_k;
  const Index experts = settings.num_experts;
  const bool softmaxed = settings.score == RouterScore::kSoftmax;
  require(d_logits.rows == routing.tokens() && d_logits.cols == experts,
          "d_logits must be [tokens, num_experts]");
  require(static_cast<Index>(d_topk_weights.size()) == routing.tokens() * k,
          "d_topk_weights must be [tokens, top_k]");
  require(softmaxed || losses.d_probability.empty(), "only softmax routers have an aux and a z loss");
  parallel_blocks(routing.tokens(), kTokensPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      const float* scores = routing.scores.row(t);
      float* d = d_logits.row(t);
      const bool with_losses = !losses.d_probability.empty() && counts(is_real, t);
      for (Index e = 0; e < experts; ++e) d[e] = with_losses ? losses.d_probability[at(e)] : 0.0f;
      weigh_backward(settings, scores, routing.topk_idx.data() + t * k, d_topk_weights.data() + t * k, d);
      if (softmaxed) {
        const float z = with_losses ? losses.d_log_sum_exp * routing.log_sum_exp[at(t)] : 0.0f;
        softmax_backward(scores, experts, z, d);
      } else {
        sigmoid_backward(scores, experts, d);
      }
    }
  });
}

}  // namespace moeloom
