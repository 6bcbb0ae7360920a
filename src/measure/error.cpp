#include "error.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>

namespace moeloom {
namespace {

double squared(double value) {
  return value * value;
}

}  // namespace

double typical_row_norm(ConstMatrixView m) {
  if (m.rows == 0) return 0;
  double sum = 0;
  for (Index i = 0; i < m.rows; ++i)
    for (Index j = 0; j < m.cols; ++j) sum += squared(m(i, j));
  return std::sqrt(sum / static_cast<double>(m.rows));
}

double worst_row_error(ConstMatrixView got, ConstMatrixView reference, double typical) {
  require(got.rows == reference.rows && got.cols == reference.cols,
          "a result must have the reference's shape");
  double worst = 0;
  for (Index i = 0; i < got.rows; ++i) {
    double sum = 0;
    for (Index j = 0; j < got.cols; ++j) sum += squared(static_cast<double>(got(i, j)) - reference(i, j));
    worst = worse(worst, sum);
  }
  return std::sqrt(worst) / (typical > 0 ? typical : 1);
}

double worse(double a, double b) {
  return a >= b || std::isnan(a) ? a : b;
}

Matrix sum_over(ConstMatrixView mine, const Communicator& comm) {
  constexpr Index kRowsAtOnce = 64;  // their doubles are all the memory that it takes beside the sum
  Matrix sum = Matrix::copy_of(mine);
  for (Index i = 0; i < mine.rows; i += kRowsAtOnce) {
    const auto part = sum.view().rows_from(i, std::min(kRowsAtOnce, mine.rows - i)).flat();
    std::vector<double> values(part.begin(), part.end());
    comm.all_sum(std::span(values));
    std::ranges::transform(values, part.begin(), [](double value) { return static_cast<float>(value); });
  }
  return sum;
}

}  // namespace moeloom
