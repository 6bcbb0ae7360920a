// A router as a composition of choices; a family of models is a row of these.
//
//   cap      logit = c tanh(logit / c) where logit_cap c is not 0
//   score    s = softmax over all experts, or sigmoid or sqrt(softplus) of each logit, in fp32 or fp64
//   choose   the k largest of s or of the logit, + correction_bias; in groups that are not kept it is -inf
//   weigh    v_j = the chosen's scores, or a softmax over the chosen logits, or their sigmoids, or a softmax
//            over the logits near the chosen one; no bias
//   divide   u_j = v_j, or divided by sum v, by sum v + number, or by max(sum v, number)
//   scale    w_j = scaling_factor * expert_scale[e_j] * u_j
#pragma once

#include "moeloom/base/index.hpp"

#include <span>

namespace moeloom {

/// `score` above.
enum class RouterScore { kSoftmax, kSigmoid, kSqrtSoftplus };

/// What the k largest are taken of, in `choose` above.
enum class ChooseBy {
  kScore,
  kLogit,  // the same order for every score here, without its roundings
  kHash    // nothing: by the token's id alone (Roller et al. 2021); only in a whole Model
};

/// What a group of experts is worth, of what is compared.
enum class GroupWorth { kSumOfTwoBest, kBest };

/// `weigh` above.
enum class WeighBy {
  kScore,
  kSoftmaxOfChosen,
  kSigmoidOfLogit,
  /// SparseMixer in evaluation (Liu et al. 2023; PhiMoE): of the experts that are not chosen before j, those
  /// whose logit l is near the chosen one's c, (c - l) / max(|l|, c) <= nearness.
  kSoftmaxOfNear
};

/// What the aux loss takes for a token's choices and probabilities.
enum class BalanceBy {
  kChoice,   // the choice, and the scores divided by their sum
  kScore,    // the k largest scores, without bias and groups (Ernie 4.5)
  kSoftmax,  // a softmax over the logits and the k largest of it, whatever the scores (MiniMax-M2, Laguna)
  kWeights   // the choice, and a softmax over the row [E] of the weights and zeros (gpt_oss in HF 4.57)
};

/// `divide` above; number: kSumPlus's and kSumAtLeast's.
enum class DivideBy { kNothing, kSum, kSumPlus, kSumAtLeast };
struct Division {
  DivideBy by = DivideBy::kSum;
  float number = 0;  // added to the sum, or its lower bound
};

/// A value; the spans show memory that must outlive who was given the settings.
struct RouterSettings {
  Index num_experts = 0;  // E
  Index top_k = 0;        // K
  float logit_cap = 0;    // Laguna's; 0: none
  RouterScore score = RouterScore::kSoftmax;
  ChooseBy choose_by = ChooseBy::kScore;
  GroupWorth group_worth = GroupWorth::kSumOfTwoBest;
  Index num_groups = 1;  // of equal size, each a stretch of expert ids
  Index topk_group = 1;  // groups kept
  WeighBy weigh_by = WeighBy::kScore;
  float nearness = 0;  // of kSoftmaxOfNear; PhiMoE's is twice router_jitter_noise
  Division divide = {};
  float scaling_factor = 1;
  std::span<const float> expert_scale = {};     // [E] or empty (1); SparseBlock makes no gradient of it
  std::span<const float> correction_bias = {};  // [E] or empty (0); has no gradient
  BalanceBy balance_by = BalanceBy::kChoice;    // kWeights: only weights that are no scores, and no z loss
  bool weight_on_input = false;  // an expert sees weight * x, instead of its output being weighted
};

/// Softmax, the k largest, weights divided by their sum or not: Mixtral's router and Qwen's.
inline RouterSettings softmax_router(Index num_experts, Index top_k, bool divided = true) {
  return {
      .num_experts = num_experts, .top_k = top_k, .divide = {divided ? DivideBy::kSum : DivideBy::kNothing}};
}

/// Throws ShapeError for top_k outside [1, E], vectors of another length than E, a balance by weights that
/// are scores, a negative nearness, groups that do not divide E, topk_group outside [1, num_groups], and kept
/// groups with fewer than top_k experts. No collective. A router checks its own in its first forward.
void check_router(const RouterSettings& settings);

}  // namespace moeloom
