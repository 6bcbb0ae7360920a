#include "tensor/ordered_sum.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

constexpr Index kCounts[] = {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 257, 1024, 1061};

/// The order of the header's first lines, one number after the other.
float in_written_order(const std::vector<float>& terms) {
  std::array<float, at(kPartialSums)> parts{};
  for (std::size_t j = 0; j < terms.size(); ++j) parts[j % parts.size()] += terms[j];
  for (std::size_t half = parts.size() / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) parts[i] += parts[i + half];
  return parts[0];
}

std::vector<float> numbers(Index count, std::uint64_t seed) {
  const Matrix m = random_matrix(1, count, seed);
  return {m.row(0), m.row(0) + count};
}

TEST(OrderedSum, HasTheWrittenOrderForEveryLength) {
  for (const Index count : kCounts) {
    const std::vector<float> x = numbers(count, 1);
    EXPECT_EQ(ordered_sum(x.data(), count), in_written_order(x)) << count;
  }
}

TEST(OrderedSum, OfProductsMultipliesAndAddsInThatOrder) {
  for (const Index count : kCounts) {
    const std::vector<float> x = numbers(count, 1), y = numbers(count, 2);
    std::array<float, at(kPartialSums)> parts{};
    for (std::size_t j = 0; j < x.size(); ++j)
      parts[j % parts.size()] = multiply_add(x[j], y[j], parts[j % parts.size()]);
    EXPECT_EQ(ordered_dot(x.data(), y.data(), count), in_written_order({parts.begin(), parts.end()}))
        << count;
  }
}

TEST(OrderedSum, CountsNoTermBehindTheEndOfARow) {
  for (const Index count : kCounts) {
    const std::vector<float> zeros(at(count));
    const auto one_each = [&](Lanes sum, auto at) { return sum + (at(zeros.data()) + 1.0f); };
    EXPECT_EQ(ordered_sum(count, one_each), static_cast<float>(count)) << count;
  }
}

TEST(OrderedSum, InPiecesIsTheSumOfTheWhole) {
  const std::vector<float> x = numbers(1061, 3);
  for (const Index piece : {kPartialSums, 8 * kPartialSums}) {
    OrderedSum sum;
    for (Index begin = 0; begin < std::ssize(x); begin += piece)
      sum.add(x.data() + begin, std::min(piece, std::ssize(x) - begin));
    EXPECT_EQ(sum.total(), in_written_order(x)) << piece;
  }
}

TEST(OrderedSum, PassesNaNAndInfinity) {
  std::vector<float> x = numbers(70, 4);
  x[69] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ordered_sum(x.data(), 70), x[69]);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(ordered_sum(x.data(), 70)));
}

}  // namespace
}  // namespace moeloom
