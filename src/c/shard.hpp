// Weights of a layer's experts, and where their gradients go, as one call was given them: read and written
// where they lie.
#pragma once

#include "moe/experts/experts.hpp"
#include "moeloom/c/moeloom.h"

namespace moeloom::c {

/// Views of `held` experts of D and F.
class Shard {
 public:
  /// Throws ShapeError, Refusal for arrays that cannot be read in place.
  Shard(Index held, const GatedActivation& activation, const ml_expert_weights* weights);
  /// NULL: all are frozen. -> whether gradients are added to or written: where it is not the same for all,
  /// those that are to be written become zeros.
  Write train(const ml_expert_grads* grads);

  const ExpertShard& shard() const { return shard_; }
  Index hidden() const { return hidden_; }
  Index intermediate() const { return inter_; }
  /// Whether both weights are.
  bool is_bf16() const { return is_bf16_; }

 private:
  Index held_, hidden_ = 0, inter_ = 0;
  ExpertShard shard_;
  bool is_bf16_ = false;
};

}  // namespace moeloom::c
