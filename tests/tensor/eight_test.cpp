#include "tensor/eight.hpp"

#include <array>
#include <numeric>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Eight, LoadsAndStoresEightFloatsAtAnyAddressAndNoMore) {
  std::array<float, 12> from{}, to{};
  std::iota(from.begin(), from.end(), 1.0f);
  for (std::size_t begin = 0; begin <= from.size() - 8; ++begin) {
    to.fill(-1);
    store8(load8(from.data() + begin), to.data() + begin);
    for (std::size_t i = 0; i < to.size(); ++i)
      EXPECT_EQ(to[i], begin <= i && i < begin + 8 ? from[i] : -1) << i << " from " << begin;
  }
}

TEST(Eight, CountsByLane) {
  const std::array<float, 8> a = {1, 2, 3, 4, 5, 6, 7, 8}, b = {8, 6, 4, 2, 0, -2, -4, -6};
  std::array<float, 8> sum{}, product{};
  store8(load8(a.data()) + load8(b.data()), sum.data());
  store8(load8(a.data()) * load8(b.data()), product.data());
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(sum[i], a[i] + b[i]);
    EXPECT_EQ(product[i], a[i] * b[i]);
  }
}

}  // namespace
}  // namespace moeloom
