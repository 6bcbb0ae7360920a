#include "error.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(MeasureError, OneWrongRowAmongManyIsSeen) {
  Matrix reference(1000, 8);
  fill(reference, 1);
  Matrix got = Matrix::copy_of(reference);
  EXPECT_EQ(worst_row_error(got, reference, typical_row_norm(reference)), 0);
  got.row(777)[3] = 2;
  EXPECT_NEAR(worst_row_error(got, reference, typical_row_norm(reference)), 1 / std::sqrt(8.0), 1e-9);
}

TEST(MeasureError, NaNIsTheWorst) {
  Matrix reference(3, 2);
  Matrix got(3, 2);
  got.row(0)[0] = std::numeric_limits<float>::quiet_NaN();
  got.row(2)[1] = 5;
  EXPECT_TRUE(std::isnan(worst_row_error(got, reference, 1)));
  EXPECT_TRUE(std::isnan(worse(1, NAN)) && std::isnan(worse(NAN, 1)));
  EXPECT_EQ(worse(2, 1), 2);
}

TEST(MeasureError, ReferencesWithoutRowsOrWithoutValuesAreNoDivisor) {
  const Matrix none(0, 4);
  EXPECT_EQ(typical_row_norm(none), 0);
  EXPECT_EQ(worst_row_error(none, none, typical_row_norm(none)), 0);
  const Matrix zeros(2, 4);
  Matrix got(2, 4);
  got.row(1)[0] = 3;
  EXPECT_EQ(worst_row_error(got, zeros, typical_row_norm(zeros)), 3);
}

TEST(MeasureError, ShapesMustBeTheSame) {
  EXPECT_THROW(worst_row_error(Matrix(2, 4), Matrix(3, 4), 1), ShapeError);
}

TEST(MeasureError, ASumOverOneRankIsItsOwnMatrix) {
  Matrix m(130, 3);
  for (Index i = 0; i < m.rows(); ++i) m.row(i)[1] = static_cast<float>(i);
  EXPECT_EQ(worst_row_error(sum_over(m, Communicator::self()), m, 1), 0);
}

}  // namespace
}  // namespace moeloom
