// Tokens of one rank for one micro-batch. A value; no collective.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstdint>
#include <vector>

namespace moeloom {

/// A target that is not counted, as PyTorch's cross entropy has it.
inline constexpr std::int32_t kIgnored = -100;

/// Token t = sequence * sequence_length + position, T = sequences * sequence_length. Ids and targets lie in
/// [0, vocab_size), which a forward checks (ShapeError).
struct Batch {
  Index sequences = 0;
  Index sequence_length = 0;
  std::vector<std::int32_t> input_ids = {};  // [T]
  std::vector<std::int32_t> targets = {};    // [T]: the token that should come next, or kIgnored
  /// [T] or empty (all are 1): 0 for padding at the left or the right of a sequence or segment, which no real
  /// token sees and the router losses leave out. Positions are 0 from the first real token on. The targets of
  /// padding are kIgnored, which the caller sees to.
  std::vector<std::uint8_t> is_real = {};
  /// [segments + 1] or empty (each sequence is one): where the examples begin that share sequences, from 0 to
  /// T. Attention stays inside a segment, and positions start again at 0 in each. A rotary embedding that
  /// goes by the length of what is read (longrope) goes by the segment's own.
  std::vector<Index> segment_offsets = {};

  /// The place of token 0 among those of the step, for routings that are recorded or given by place.
  Index first_token = 0;
  /// [sparse layer][T, K]: experts that these tokens visit whatever the routers score; empty: routers choose.
  std::vector<std::vector<std::int32_t>> given_topk_idx = {};

  Index tokens() const { return sequences * sequence_length; }
  /// Targets that are not kIgnored.
  Index counted_targets() const;
};

/// Throws ShapeError unless segment_offsets is empty, or begins with 0 and ends with T, each offset above the
/// one before, and no segment lies in two sequences; and for padding between real tokens.
void check_segments(const Batch& batch);
/// segment_offsets where padding at the left is a segment of its own; empty if each sequence is one.
std::vector<Index> segments_behind_padding(const Batch& batch);

}  // namespace moeloom
