// What a step learns from, and which of it each rank gets.
#pragma once

#include "moeloom/base/index.hpp"

namespace moeloom {

struct BatchShape {
  Index sequences = 16;     // of a step over all ranks
  Index length = 256;       // of each in tokens
  Index micro_batches = 1;  // of a step
  Index exact = 0;          // sequences of a leaf of exact sums; 0: sums follow the tree of ranks

  Index tokens() const { return sequences * length; }
  /// Of a rank.
  Index sequences_per_micro_batch(Index world) const { return sequences / (world * micro_batches); }
  /// Of a rank's micro-batch, in the step. With exact sums a micro-batch of all ranks is a stretch of the
  /// step, and so the same on every mesh; else each rank's micro-batches together are one.
  Index first_sequence(Index micro_batch, Index rank, Index world) const {
    return (exact > 0 ? micro_batch * world + rank : rank * micro_batches + micro_batch) *
           sequences_per_micro_batch(world);
  }
};

}  // namespace moeloom
