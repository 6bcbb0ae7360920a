// Which experts a token visits, with what weight, and the gradient of both; one rank's tokens.
//
// The formulas are in router_settings.hpp. Gradients flow through all of them but the choice.
#pragma once

#include "moeloom/moe/routing/chosen_experts.hpp"
#include "moeloom/moe/routing/router_settings.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

/// Whether the aux loss takes a softmax that is not the router's own.
inline bool is_balanced_apart(const RouterSettings& router) {
  return router.balance_by == BalanceBy::kSoftmax && router.score != RouterScore::kSoftmax;
}

struct Routing {
  Index top_k = 0;                     // slots of each token: the router's, but for expert choice
  Matrix scores;                       // [T, E]; of kWeights the aux loss's probabilities
  std::vector<float> log_sum_exp;      // [T]; empty unless scores are a softmax
  std::vector<float> entropy;          // [T], nats, of the scores divided by their sum
  std::vector<std::int32_t> topk_idx;  // [T, K], by falling value in the choice; kNoExpert at a slot's end
  std::vector<float> topk_values;      // [T, K]: v_j
  std::vector<float> topk_weights;     // [T, K]: w_j
  Matrix near;  // [T*K, E] of kSoftmaxOfNear: the softmax whose value v_j is; else empty
  std::vector<std::int32_t> kept_idx;  // [T, K]: topk_idx without what capacity drops; empty: all is kept
  /// [T, E] of kSoftmax where scores are something else: the aux loss's probabilities; else empty.
  Matrix balance_scores;
  /// Experts that the aux loss counts: [T, balance_k] of kScore and kSoftmax; else topk_idx, and balance_k is
  /// 0.
  std::vector<std::int32_t> balance_idx;
  Index balance_k = 0;
  static double bytes_of(const RouterSettings& router, Index tokens) {
    const Index slots = tokens * router.top_k;
    const Index near = router.weigh_by == WeighBy::kSoftmaxOfNear ? router.num_experts : 0;
    const bool by_largest =
        router.balance_by == BalanceBy::kScore || router.balance_by == BalanceBy::kSoftmax;
    return rows_bytes(tokens,
                      {router.num_experts, 1, 1, is_balanced_apart(router) ? router.num_experts : 0}) +
           rows_bytes(slots, {1, 1, 1, near, by_largest ? 1 : 0});
  }
  Index tokens() const { return scores.rows(); }
  /// What the aux loss's probabilities are in proportion to, [T, E].
  const Matrix& balanced_scores() const { return balance_scores.rows() > 0 ? balance_scores : scores; }
  /// What is dispatched.
  std::span<const std::int32_t> sent_idx() const { return kept_idx.empty() ? topk_idx : kept_idx; }
};

/// logits [T, E], capped already -> scores, log_sum_exp and the token's own choice with its weights;
/// `routing`'s memory is reused. Throws ShapeError for logits of another width, as check_router() does, and
/// for kHash, which needs tokens' ids (hash_choice.hpp). Logits are not searched for NaN: a row with one gets
/// NaN throughout and k different experts, and the NaN goes on to the loss, where a step is judged.
void route(ConstMatrixView logits, const RouterSettings& settings, Routing& routing);
/// The same, computed in double and rounded at the end.
void route(BasicView<const double> logits, const RouterSettings& settings, Routing& routing);

/// scores and log_sum_exp alone.
void score(ConstMatrixView logits, const RouterSettings& settings, Routing& routing);
void score(BasicView<const double> logits, const RouterSettings& settings, Routing& routing);
/// topk_idx [T, routing.top_k] was filled by somebody else -> the weights. After score() of the same logits.
void weigh(ConstMatrixView logits, const RouterSettings& settings, Routing& routing);
void weigh(BasicView<const double> logits, const RouterSettings& settings, Routing& routing);

/// d(loss)/d(what the losses of balance are made of), of one layer.
struct RouterLossGradient {
  /// [rows, E]: a constant a probability of expert e, of every token of a row; empty: no such loss.
  std::vector<float> d_probability;
  Index tokens_per_row = 0;  // 0: all tokens are of one row
  float d_log_sum_exp = 0;   // times log_sum_exp
  bool empty() const { return d_probability.empty() && d_log_sum_exp == 0; }
};

/// d_topk_weights [T, K] and the losses' part -> d_logits [T, E], of what route() was given. The
/// probabilities of the losses are balanced_scores() divided by their sum. Throws ShapeError for a gradient
/// of log_sum_exp where there is none.
void route_backward(const Routing& routing, const RouterSettings& settings,
                    std::span<const float> d_topk_weights, const RouterLossGradient& losses,
                    std::span<const std::uint8_t> is_real, MatrixView d_logits);
/// d_topk_weights [T, K] -> d_expert_scale [E] += that of some of the tokens, one after the other.
void expert_scale_backward(const Routing& routing, const RouterSettings& settings,
                           std::span<const float> d_topk_weights, const Stretch& tokens,
                           std::span<float> d_expert_scale);

}  // namespace moeloom
