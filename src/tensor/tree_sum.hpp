// The one order in which contributions of ranks are added: a binary tree over their numbers.
//
// sum[lo, hi) = sum[lo, mid) + sum[mid, hi), mid = lo + the largest power of two below hi - lo. A row of ep
// ranks (a power of two) is a subtree, so summing along ep first and along dp after it gives the same bits as
// summing over the world at once.
#pragma once

#include "moeloom/base/index.hpp"

#include <bit>

namespace moeloom {

constexpr Index tree_split(Index lo, Index hi) {
  return lo + static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(hi - lo - 1)));
}

/// leaf(i) gives contribution i; the values of [lo, hi) added up along the tree. hi > lo.
template <typename Leaf>
auto tree_sum(Index lo, Index hi, const Leaf& leaf) -> decltype(leaf(lo)) {
  if (hi - lo == 1) return leaf(lo);
  const Index mid = tree_split(lo, hi);
  return tree_sum(lo, mid, leaf) + tree_sum(mid, hi, leaf);
}

/// rows[i] + i-th contributions of `count` floats each: target = their tree sum, one pass over memory per
/// level. contributions: `leaves` blocks of `count` floats, `stride` floats apart. target may be the first
/// block.
void tree_sum_blocks(const float* contributions, Index leaves, Index stride, Index count, float* target);
/// The same of bf16: added up in fp32, and rounded once.
void tree_sum_blocks(const std::uint16_t* contributions, Index leaves, Index stride, Index count,
                     std::uint16_t* target);

}  // namespace moeloom
