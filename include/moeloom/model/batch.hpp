// Tokens of one rank for one micro-batch.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstdint>
#include <vector>

namespace moeloom {

/// A target that is not counted.
inline constexpr std::int32_t kIgnored = -100;

/// Token t = sequence * sequence_length + position.
struct Batch {
  Index sequences = 0;
  Index sequence_length = 0;
  std::vector<std::int32_t> input_ids = {};  // [T]
  std::vector<std::int32_t> targets = {};    // [T]: the token that should come next, or kIgnored
  /// [T] or empty (all): 0 for padding at the right, left out of the router losses.
  std::vector<std::uint8_t> is_real = {};
  /// [segments + 1] or empty (each sequence is one): where the examples begin that share sequences, from 0 to
  /// T. Attention stays inside a segment, and positions start again at 0 in each. A rotary embedding that
  /// goes by the length of what is read (longrope) goes by the segment's own.
  std::vector<Index> segment_offsets = {};

  Index first_token = 0;  // place of token 0 among those of the step, or of the text that is generated
  /// [sparse layer][T, K]: experts that these tokens visit whatever the routers score; empty: they choose.
  std::vector<std::vector<std::int32_t>> given_topk_idx = {};

  Index tokens() const { return sequences * sequence_length; }
  Index counted_targets() const;
};

/// Throws ShapeError unless each offset is above the one before, the first is 0 and the last T, and no
/// segment lies in two sequences.
void check_segments(const Batch& batch);

}  // namespace moeloom
