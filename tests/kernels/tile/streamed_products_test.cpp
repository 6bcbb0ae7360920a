#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/kernels/dense.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

double distance(ConstMatrixView a, ConstMatrixView b) {
  double most = 0;
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < a.cols; ++j) most = std::max<double>(most, std::fabs(a(i, j) - b(i, j)));
  return most;
}

bool same_bits(ConstMatrixView a, ConstMatrixView b) {
  for (Index i = 0; i < a.rows; ++i)
    if (std::memcmp(a.row(i), b.row(i), at(a.cols) * sizeof(float)) != 0) return false;
  return true;
}

TEST(StreamedDense, EqualsOpenBlasWrittenAndAdded) {
  for (const Index rows : {0, 1, 2, 3, 4, 5, 70})
    for (const auto& [out, in] : {std::pair<Index, Index>{1, 1}, {17, 20}, {130, 1061}, {259, 48}})
      for (const Write mode : {Write::kReplace, Write::kAdd}) {
        const Matrix x = random_matrix(rows, in, 1), w = random_matrix(out, in, 2);
        Matrix streamed = random_matrix(rows, out, 3), native = random_matrix(rows, out, 3);
        streamed_dense().forward(x, w, streamed, mode);
        native_dense().forward(x, w, native, mode);
        EXPECT_LT(distance(streamed, native), 1e-5 * std::sqrt(static_cast<double>(in)))
            << rows << " rows of " << out << " x " << in;
      }
}

TEST(StreamedDense, ARowsBitsDependNeitherOnOthersNorOnThreads) {
  const Matrix x = random_matrix(4, 533, 1), w = random_matrix(201, 533, 2);
  Matrix all(4, 201), one(1, 201);
  set_threads(2);
  streamed_dense().forward(x, w, all, Write::kReplace);
  set_threads(1);
  for (Index row = 0; row < 4; ++row) {
    streamed_dense().forward(x.view().rows_from(row, 1), w, one, Write::kReplace);
    EXPECT_TRUE(same_bits(one, all.view().rows_from(row, 1))) << row;
  }
}

TEST(StreamedGroupedMatmul, EqualsTheLoopForFewRowsAndForMany) {
  const std::vector<std::vector<Index>> counts = {{1, 0, 0, 2}, {4, 4, 4, 4}, {0, 0, 0, 0}, {0, 9, 1, 0}};
  for (const std::vector<Index>& rows : counts) {
    const GroupedRows grouped{rows};
    const Matrix x = random_matrix(grouped.total(), 75, 1), w = random_matrix(4 * 130, 75, 2);
    Matrix streamed = random_matrix(grouped.total(), 130, 3), native = random_matrix(grouped.total(), 130, 3);
    const PackedWeights none;
    streamed_grouped_matmul().forward({w, 4}, none, x, grouped, streamed);
    native_grouped_matmul().forward({w, 4}, none, x, grouped, native);
    EXPECT_LT(distance(streamed, native), 1e-4);
  }
}

TEST(StreamedDense, RefusesShapesThatDoNotFit) {
  const Matrix x(2, 8), w(5, 7);
  Matrix y(2, 5);
  EXPECT_THROW(streamed_dense().forward(x, w, y, Write::kReplace), ShapeError);
}

}  // namespace
}  // namespace moeloom
