// One expert of a shard as arrays, in one order on every rank: what a rank reads that multiplies rows of
// another one's expert, and the gradients that it gives back.
#pragma once

#include "moe/experts/experts.hpp"

#include <span>
#include <vector>

namespace moeloom {

/// gate_up and down, their biases, A and B of what adapters add to either.
std::vector<std::span<const std::byte>> arrays_of(const ExpertShard& shard, Index expert);

/// A shard of one expert of those shapes, whose arrays lie at `places`, and that trains nothing.
ExpertShard expert_at(const ExpertShard& shape, std::span<const std::byte* const> places);

/// Of all that `shape` trains of an expert: floats.
Index gradient_floats(const ExpertShard& shape);
/// Where gradients of `expert`, a shard of one, are then written: side by side from `sum` on.
void place_gradients(const ExpertShard& shape, float* sum, ExpertShard& expert);
/// What lies there into the gradients of a shard's expert; bf16 is rounded once, from the new sum.
void write_gradients(std::span<const float> sum, const ExpertShard& shard, Index expert, Write mode);
/// Of exact sums, in the same order, to those of the shard.
void add_sums(std::span<const std::int64_t> sum, const ExpertShard& shard, Index expert);

}  // namespace moeloom
