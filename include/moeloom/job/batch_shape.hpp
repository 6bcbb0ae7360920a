// What a step learns from, and which of it each rank gets. The same on every rank; no collective.
#pragma once

#include "moeloom/base/index.hpp"

namespace moeloom {

/// `sequences` has to be a multiple of ranks * micro_batches.
struct BatchShape {
  Index sequences = 16;     // of a step, over all ranks
  Index length = 256;       // tokens of a sequence
  Index micro_batches = 1;  // parts of a step that each rank computes one after the other
  /// 0: sums of gradients follow a tree over ranks, and their bits depend on the number of ranks. n > 0: they
  /// are made of parts of n sequences (leaves), the same on every mesh and number of ranks (ExactSums); each
  /// micro-batch of a rank is then a multiple of n.
  Index exact = 0;

  Index tokens() const { return sequences * length; }
  /// Sequences that one rank has in one micro-batch; world: the number of ranks.
  Index sequences_per_micro_batch(Index world) const { return sequences / (world * micro_batches); }
  /// The place in the step, from 0, of the first sequence of a rank's micro-batch. With exact sums a
  /// micro-batch of all ranks is a stretch of the step, and so the same on every mesh; else each rank's
  /// micro-batches together are one.
  Index first_sequence(Index micro_batch, Index rank, Index world) const {
    return (exact > 0 ? micro_batch * world + rank : rank * micro_batches + micro_batch) *
           sequences_per_micro_batch(world);
  }
};

}  // namespace moeloom
