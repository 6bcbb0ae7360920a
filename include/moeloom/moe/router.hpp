// The router: which experts a token visits and with what weight.
//
// scores = softmax over all experts, or a sigmoid each (DeepSeek-V3), in fp32. The choice is of the k largest
// of scores + correction_bias (the lower index on a tie), after whole groups of experts were left out: a
// group is worth the sum of its two best, and in those that are not kept the compared value is 0, as in HF.
// The weights are the scores of the chosen, without the bias, divided by their sum if norm_topk_prob, times
// scaling_factor. Gradients flow through all of this but the choice.
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

enum class RouterScore { kSoftmax, kSigmoid };

struct RouterSettings {
  Index num_experts = 0;
  Index top_k = 0;
  bool norm_topk_prob = true;
  RouterScore score = RouterScore::kSoftmax;
  Index num_groups = 1;                         // of equal size, each a stretch of expert ids
  Index topk_group = 1;                         // groups kept
  float scaling_factor = 1;                     // of the weights
  std::span<const float> correction_bias = {};  // [E] or empty; has no gradient
};

struct Routing {
  Matrix scores;                       // [T, E]
  std::vector<float> log_sum_exp;      // [T]; empty for sigmoid scores
  std::vector<std::int32_t> topk_idx;  // [T, K], by falling value in the choice
  std::vector<float> topk_weights;     // [T, K]
  Index tokens() const { return scores.rows(); }
};

/// logits [T, E] -> routing, its memory reused. Throws ShapeError for logits or a bias of another width, for
/// top_k outside [1, E], groups that do not divide E, and kept groups with fewer than top_k experts. Logits
/// are not searched for NaN: a row with one gets NaN throughout and k different experts, and the NaN goes on
/// to the loss, where a step is judged.
void route(ConstMatrixView logits, const RouterSettings& settings, Routing& routing);

/// d(loss)/d(statistics) of one real token: a constant a probability of expert e, and a factor of
/// log_sum_exp.
struct RouterLossGradient {
  std::vector<float> d_probability;  // [E]; empty: no router losses
  float d_log_sum_exp = 0;           // times log_sum_exp
};

/// d_topk_weights [T, K] and the router losses' part -> d_logits [T, E]. Throws ShapeError for router losses
/// of sigmoid scores.
void route_backward(const Routing& routing, const RouterSettings& settings,
                    std::span<const float> d_topk_weights, const RouterLossGradient& losses,
                    std::span<const std::uint8_t> is_real, MatrixView d_logits);

}  // namespace moeloom
