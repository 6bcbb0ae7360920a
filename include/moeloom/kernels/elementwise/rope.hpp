// Rotary position embedding (Su et al. 2021): pairs of a head's elements turn by the angle of their position.
// No collective.
//
// Elements of a head outside the table's turned ones pass through (partial RoPE).
#pragma once

#include "moeloom/kernels/elementwise/rope_table.hpp"

#include <cstdint>
#include <span>

namespace moeloom {

/// All throw ShapeError for shapes that do not fit, and positions that the table has not. T may be 0.
struct RopeKernel {
  /// x [T, heads*head_dim], in place. position_ids [T]: rows of the table, each below table.positions(); a
  /// token's position, plus table.first_row() of its sequence's length.
  void (*forward)(MatrixView x, Index head_dim, std::span<const std::int32_t> position_ids,
                  const RopeTable& table);
  /// The transpose of forward, in place on the gradient: turned backwards, with the same attention factor,
  /// each element back at its place.
  void (*backward)(MatrixView dx, Index head_dim, std::span<const std::int32_t> position_ids,
                   const RopeTable& table);
};

/// Plain loops on one thread; what the fused kernel is tested against.
RopeKernel reference_rope();
/// One vectorised pass in place, threaded over rows.
RopeKernel fused_rope();

}  // namespace moeloom
