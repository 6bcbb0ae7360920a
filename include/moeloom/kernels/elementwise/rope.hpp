// Rotary position embedding: pairs of a head's elements turn by the angle of their position.
//
// Elements of a head outside the table's turned ones pass through (partial RoPE).
#pragma once

#include "moeloom/kernels/elementwise/rope_table.hpp"

#include <cstdint>
#include <span>

namespace moeloom {

struct RopeKernel {
  /// x [T, heads*head_dim], in place; position_ids [T], each below table.positions().
  void (*forward)(MatrixView x, Index head_dim, std::span<const std::int32_t> position_ids,
                  const RopeTable& table);
  /// The transpose of forward, in place on the gradient: turned backwards, with the same attention factor,
  /// each element back at its place.
  void (*backward)(MatrixView dx, Index head_dim, std::span<const std::int32_t> position_ids,
                   const RopeTable& table);
};

RopeKernel reference_rope();
RopeKernel fused_rope();

}  // namespace moeloom
