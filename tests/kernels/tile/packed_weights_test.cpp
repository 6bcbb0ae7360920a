// The packed faces of grouped weights: when they follow the masters, and that products of either are the
// same.
#include "moeloom/base/errors.hpp"

#include "grouped_matmul_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Case;
using testing::cases;
using testing::kPacked;
using testing::Problem;
using testing::random_matrix;
using testing::same_bits;

TEST(PackedWeights, FollowTheMastersOnlyWhenPackedAgain) {
  const Case c{20, 12, {5, 9}};
  Problem p(c);
  PackedWeights packed;
  EXPECT_TRUE(packed.empty());
  EXPECT_EQ(packed.bytes(), 0);
  packed.pack(p.weights());
  const auto forward = [&] {
    packed_grouped_matmul().forward(p.weights(), packed, p.x, p.rows, p.y);
    return Matrix::copy_of(p.y);
  };
  const Matrix first = forward();
  for (float& value : p.masters.view().flat()) value *= 2;
  EXPECT_TRUE(same_bits(forward(), first));
  packed.pack(p.weights());
  const Matrix second = forward();
  for (Index i = 0; i < first.rows() * first.cols(); ++i)
    ASSERT_EQ(second.view().data[i], 2 * first.view().data[i]);
  EXPECT_FALSE(packed.empty());
  EXPECT_EQ(packed.packings(), 2);
  EXPECT_GE(packed.bytes(), 2 * 4 * p.masters.view().size());
}

TEST(PackedWeights, TakeHalfTheBytesInBf16) {
  const Matrix masters = random_matrix(3 * 64, 96, 1);
  PackedWeights fp32, bf16;
  fp32.pack({masters, 3});
  bf16.pack({masters, 3}, DType::kBF16);
  EXPECT_EQ(fp32.element(), DType::kF32);
  EXPECT_EQ(bf16.element(), DType::kBF16);
  EXPECT_EQ(2 * bf16.bytes(), fp32.bytes());
  EXPECT_THROW(bf16.pack({masters, 3}, DType::kF16), ShapeError);
}

TEST(PackedWeights, GiveTheBitsOfTheirMasters) {
  for (const Case& c : cases())
    for (const auto& [name, kernel] : kPacked) {
      SCOPED_TRACE(c);
      SCOPED_TRACE(name);
      Problem packed(c), straight(c);
      packed.run(kernel);
      GroupedMatmulKernel masters = kernel;
      masters.uses_packed = false;
      straight.run(masters);
      EXPECT_TRUE(same_bits(packed.y, straight.y));
      EXPECT_TRUE(same_bits(packed.dx, straight.dx));
    }
}

}  // namespace
}  // namespace moeloom
