#include "train/sum_of_squares.hpp"

#include "moeloom/tensor/dtype.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// Whole numbers, whose squares add up to the same in every order.
float number(std::size_t i) {
  return static_cast<float>(i % 17) - 8;
}

TEST(SumOfSquares, HasEveryNumberOfAnyLengthOnce) {
  for (const std::size_t size : {0, 1, 7, 16, 63, 64, 65, 128, 200, 1000, 4097}) {
    std::vector<float> floats;
    std::vector<std::uint16_t> halves;
    double expected = 0;
    for (std::size_t i = 0; i < size; ++i) {
      floats.push_back(number(i));
      halves.push_back(float_to_bf16(number(i)));
      expected += static_cast<double>(number(i)) * number(i);
    }
    EXPECT_EQ(sum_of_squares<float>(floats), expected) << size;
    EXPECT_EQ(sum_of_squares<std::uint16_t>(halves), expected) << size;
  }
}

}  // namespace
}  // namespace moeloom
