// Rotary position embedding, half-split pairs: element i of a head turns with element i + rotary_dim/2.
//
// angle = position * theta^(-2i / rotary_dim), Su et al. 2021. Where rotary_dim is below the head's size the
// leading elements turn and the rest pass through (partial RoPE).
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <cstdint>
#include <span>

namespace moeloom {

/// cos and sin [positions, rotary_dim / 2], computed in double.
struct RopeTable {
  Matrix cosine;
  Matrix sine;
  Index rotary_dim() const { return 2 * cosine.cols(); }
  Index positions() const { return cosine.rows(); }
};
RopeTable make_rope_table(Index positions, Index rotary_dim, double theta);

struct RopeKernel {
  /// x [T, heads*head_dim], in place; position_ids [T], each below table.positions().
  void (*forward)(MatrixView x, Index head_dim, std::span<const std::int32_t> position_ids,
                  const RopeTable& table);
  /// The same turn backwards, in place on the gradient: a rotation's transpose is its inverse.
  void (*backward)(MatrixView dx, Index head_dim, std::span<const std::int32_t> position_ids,
                   const RopeTable& table);
};

RopeKernel reference_rope();
RopeKernel fused_rope();

}  // namespace moeloom
