// What routers do that the model's config does not say: how they choose in training, in which precision, and
// over which tokens their load is balanced. The same on every rank.
#pragma once

#include "moeloom/base/index.hpp"

namespace moeloom {

/// What a router does in training beside its formulas. Evaluation and generation choose by token, without
/// dropping anything: a token's output must not depend on the tokens beside and behind it.
struct RouterTraining {
  /// Experts choose tokens (Zhou et al. 2022): each the ceil(N K / E) with its largest scores, of the N
  /// tokens of all ranks in this micro-batch; a token has as many experts as chose it, 0 to E.
  bool expert_choice = false;
  /// An expert takes at most ceil(factor N K / E) rows of the N tokens of all ranks in this micro-batch,
  /// those of the largest weights; 0: as many as come. A slot that is dropped brings nothing: a token without
  /// any passes by the residual.
  double capacity_factor = 0;
};

/// What logits and scores are computed in.
enum class RouterDType { kFp32, kFp64 };

/// Which tokens the two factors of the aux loss are taken over (Fedus et al. 2021, eq. 4): f, an expert's
/// share of the choices, and P, its mean probability.
enum class BalanceOver {
  kMicroBatch,  // of all ranks; the loss of a step is the mean over its micro-batches
  kSequence,    // each sequence by itself, and the mean over sequences (DeepSeek-V3, eq. 17)
  kGlobalBatch  // f over all micro-batches of the step (Qiu et al. 2025), P over each
};

struct BalanceSettings {
  /// f and P are counted over all layers together, as transformers does; false: the mean of each layer's
  /// loss.
  bool pooled = true;
  BalanceOver over = BalanceOver::kMicroBatch;
};

/// All of that.
struct RoutingSettings {
  RouterTraining training = {};
  RouterDType dtype = RouterDType::kFp32;
  BalanceSettings balance = {};
  /// The most rows that a rank may receive at once; 0: as many as come. Where a rank would receive more, the
  /// layer runs in slices of its tokens: the same outputs bit for bit, in less memory and more time.
  Index row_budget = 0;
};

}  // namespace moeloom
