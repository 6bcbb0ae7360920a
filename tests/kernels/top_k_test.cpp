#include "kernels/top_k.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::int32_t> largest(std::vector<float> values, Index k) {
  const Index n = std::ssize(values);
  values.resize(at(n + 64), 1e30f);  // what stands behind the row is not its own
  std::vector<std::int32_t> chosen(at(k), -1);
  largest_of(values.data(), n, k, chosen.data());
  return chosen;
}

/// A stable sort: numbers by falling value, then NaN.
std::vector<std::int32_t> sorted(const std::vector<float>& values, Index k) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    const float x = values[at(a)], y = values[at(b)];
    return x > y || (std::isnan(y) && !std::isnan(x));
  });
  order.resize(at(k));
  return order;
}

TEST(TopK, IsTheBeginningOfAStableSort) {
  for (const Index n : {1, 2, 8, 31, 32, 33, 64, 127, 128, 129, 160, 256, 384, 512, 513, 1000})
    for (const Index k : {Index{1}, Index{2}, Index{8}, Index{10}, Index{16}, n / 2, n})
      for (const std::uint64_t seed : {1u, 2u, 3u}) {
        if (k < 1 || k > n) continue;
        const Matrix row = testing::random_matrix(1, n, seed);
        const std::vector<float> values(row.row(0), row.row(0) + n);
        EXPECT_EQ(largest(values, k), sorted(values, k)) << "n = " << n << ", k = " << k;
      }
}

TEST(TopK, TakesTheLowerPlaceOfEqualValues) {
  for (const Index n : {5, 40, 128, 500})
    for (const float levels : {0.5f, 1.0f, 3.0f}) {  // few different values
      const Matrix row = testing::random_matrix(1, n, 7);
      std::vector<float> values;
      for (Index e = 0; e < n; ++e) values.push_back(std::round(levels * row.row(0)[e]));
      EXPECT_EQ(largest(values, std::min<Index>(n, 12)), sorted(values, std::min<Index>(n, 12))) << n;
    }
  EXPECT_EQ(largest(std::vector<float>(128, 0.0f), 3), (std::vector<std::int32_t>{0, 1, 2}));
  std::vector<float> zeros(128, -1.0f);
  zeros[70] = -0.0f;
  zeros[90] = 0.0f;
  EXPECT_EQ(largest(zeros, 2), (std::vector<std::int32_t>{70, 90})) << "zeros are equal";
}

TEST(TopK, WhatIsNoNumberComesLast) {
  for (const Index n : {6, 64, 128, 512}) {
    std::vector<float> values(at(n), kNan);
    EXPECT_EQ(largest(values, 5), (std::vector<std::int32_t>{0, 1, 2, 3, 4})) << n;
    values[at(n - 1)] = -3;
    values[at(n - 3)] = 2;
    values[1] = -kInf;
    EXPECT_EQ(largest(values, 5), sorted(values, 5)) << n;
    values[2] = kInf;
    EXPECT_EQ(largest(values, 5), sorted(values, 5)) << n;
    std::fill(values.begin(), values.end(), -kInf);
    values[3] = kNan;
    EXPECT_EQ(largest(values, 5), (std::vector<std::int32_t>{0, 1, 2, 4, 5})) << n;
  }
}

}  // namespace
}  // namespace moeloom
