#include "moeloom/tensor/tree_sum.hpp"

#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <array>

namespace moeloom {
namespace {

constexpr Index kBlock = 1024;  // floats: a level's buffer stays in the first-level cache

void sum_range(const float* base, Index stride, Index lo, Index hi, Index count, float* target) {
  if (hi - lo == 1) {
    std::copy_n(base + lo * stride, count, target);
    return;
  }
  const Index mid = tree_split(lo, hi);
  std::array<float, kBlock> right;
  sum_range(base, stride, lo, mid, count, target);
  sum_range(base, stride, mid, hi, count, right.data());
  for (Index i = 0; i < count; ++i) target[i] += right[static_cast<std::size_t>(i)];
}

}  // namespace

void tree_sum_blocks(const float* contributions, Index leaves, Index stride, Index count, float* target) {
  parallel_blocks(count, kBlock, [&](Index begin, Index end) {
    std::array<float, kBlock> sum;
    sum_range(contributions + begin, stride, 0, leaves, end - begin, sum.data());
    std::copy_n(sum.data(), end - begin, target + begin);
  });
}

}  // namespace moeloom
