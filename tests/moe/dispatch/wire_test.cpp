#include "moe/dispatch/wire.hpp"

#include "moeloom/tensor/dtype.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::vector<float> travelled(const std::vector<float>& row, WireDType type) {
  std::vector<float> wire(at(wire_cols(std::ssize(row), type)));
  std::vector<float> back(row.size());
  to_wire(row.data(), std::ssize(row), type, wire.data());
  from_wire(wire.data(), std::ssize(row), type, back.data());
  return back;
}

TEST(Wire, Bf16TakesHalfThePlaceAndRoundsAsTheDTypeDoes) {
  for (const Index cols : {1, 2, 3, 16, 31, 257}) {
    EXPECT_EQ(wire_cols(cols, WireDType::kBf16), (cols + 1) / 2);
    EXPECT_EQ(wire_cols(cols, WireDType::kFp32), cols);
    const Matrix random = testing::random_matrix(1, cols, static_cast<std::uint64_t>(cols));
    const std::vector<float> row(random.row(0), random.row(0) + cols);
    std::vector<float> rounded;
    for (const float x : row) rounded.push_back(bf16_to_float(float_to_bf16(x)));
    EXPECT_EQ(travelled(row, WireDType::kBf16), rounded) << cols;
    EXPECT_EQ(travelled(row, WireDType::kFp32), row) << cols;
  }
}

TEST(Wire, WhatIsNotFiniteStaysSo) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> back =
      travelled({std::nanf(""), -infinity, std::nanf("0x1"), infinity, std::numeric_limits<float>::max()},
                WireDType::kBf16);
  EXPECT_TRUE(std::isnan(back[0]));
  EXPECT_EQ(back[1], -infinity);
  EXPECT_TRUE(std::isnan(back[2]));
  EXPECT_EQ(back[3], infinity);
  EXPECT_EQ(back[4], infinity);  // nearer than the largest bf16
}

}  // namespace
}  // namespace moeloom
