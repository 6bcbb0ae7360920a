#include "tensor/tree_sum.hpp"

#include "moeloom/base/parallel.hpp"
#include "moeloom/tensor/rows.hpp"

#include <array>

namespace moeloom {
namespace {

constexpr Index kBlock = 1024;  // floats: a level's buffer stays in the first-level cache

template <typename Number>
void sum_range(const Number* base, Index stride, Index lo, Index hi, Index count, float* target) {
  if (hi - lo == 1) {
    const Number* const leaf = base + lo * stride;
    for (Index i = 0; i < count; ++i) target[i] = as_float(leaf[i]);
    return;
  }
  const Index mid = tree_split(lo, hi);
  std::array<float, kBlock> right;
  sum_range(base, stride, lo, mid, count, target);
  sum_range(base, stride, mid, hi, count, right.data());
  for (Index i = 0; i < count; ++i) target[i] += right[static_cast<std::size_t>(i)];
}

template <typename Number>
void sum_blocks(const Number* contributions, Index leaves, Index stride, Index count, Number* target) {
  parallel_blocks(count, kBlock, [&](Index begin, Index end) {
    std::array<float, kBlock> sum;
    sum_range(contributions + begin, stride, 0, leaves, end - begin, sum.data());
    for (Index i = begin; i < end; ++i) set(target[i], sum[static_cast<std::size_t>(i - begin)]);
  });
}

}  // namespace

void tree_sum_blocks(const float* contributions, Index leaves, Index stride, Index count, float* target) {
  sum_blocks(contributions, leaves, stride, count, target);
}

void tree_sum_blocks(const std::uint16_t* contributions, Index leaves, Index stride, Index count,
                     std::uint16_t* target) {
  sum_blocks(contributions, leaves, stride, count, target);
}

}  // namespace moeloom
