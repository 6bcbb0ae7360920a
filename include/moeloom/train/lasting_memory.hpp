// What a rank of a training job holds from before the first step to after the last: weights, gradients and
// the optimizer's moments, counted before any of it is there.
#pragma once

#include "moeloom/comm/mesh.hpp"
#include "moeloom/model/parameters.hpp"
#include "moeloom/train/moments.hpp"
#include "moeloom/train/optimizer_kind.hpp"

namespace moeloom {

/// Bytes of one rank by what they are for.
struct LastingMemory {
  double dense_weights = 0, dense_gradients = 0;
  double expert_weights = 0, expert_gradients = 0;
  double moments = 0;     // of what this rank owns
  double exact_sums = 0;  // beside gradients, where sums have the same bits on every mesh

  double lasting() const {
    return dense_weights + dense_gradients + expert_weights + expert_gradients + moments + exact_sums;
  }
};

struct LastingSettings {
  bool exact = false;  // sums have the same bits on every mesh
  MomentFormat moments = MomentFormat::kFp32;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  Index sharers = 1;         // ranks of a node, which keep frozen bf16 weights of all ranks once
  bool shard_dense = false;  // and the other dense weights too; gradients are sharded
  bool offload = false;      // frozen experts in bf16 or F16 lie on a disk, but for those of two layers
};

/// Of a rank whose parameters these are.
LastingMemory lasting_memory(const std::vector<ParameterSpec>& specs, const MeshShape& mesh,
                             const LastingSettings& settings = {});

}  // namespace moeloom
