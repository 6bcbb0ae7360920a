// What a rank of a training job holds from before the first step to after the last: weights, gradients and
// the optimizer's moments, counted before any of it is there.
#pragma once

#include "model/parts/parameters.hpp"
#include "moeloom/job/job.hpp"

#include <vector>

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

/// Of a rank whose parameters these are. The ranks of a node keep frozen bf16 weights of all of them once,
/// with shard_dense the other dense weights too; of frozen experts on a disk those of two layers are held.
LastingMemory lasting_memory(const std::vector<ParameterSpec>& specs, const Job& job);

}  // namespace moeloom
