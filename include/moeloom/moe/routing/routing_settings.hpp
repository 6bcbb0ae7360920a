// What routers do that the model does not say: how they choose in training, in which precision, and over
// which tokens their load is balanced.
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

enum class RouterDType { kFp32, kFp64 };

/// Which tokens f and P are taken over.
enum class BalanceOver {
  kMicroBatch,  // of all ranks; the loss of a step is the mean over its micro-batches
  kSequence,    // each sequence by itself, and the mean over sequences (DeepSeek-V3, eq. 17)
  kGlobalBatch  // f over all micro-batches of the step (Qiu et al. 2025), P over each
};

struct BalanceSettings {
  bool pooled = true;  // layers are joined to one
  BalanceOver over = BalanceOver::kMicroBatch;
};

/// What routers do that the model does not say.
struct RoutingSettings {
  RouterTraining training = {};
  RouterDType dtype = RouterDType::kFp32;
  BalanceSettings balance = {};
  /// The most rows that a rank may receive at once; 0: as many as come. With more, a layer runs in slices of
  /// its tokens.
  Index row_budget = 0;
};

}  // namespace moeloom
