// What the tests of rmsnorm, rope and swiglu share: views with a gap between rows, differences in double,
// bits.
#pragma once

#include "moeloom/base/parallel.hpp"
#include "moeloom/tensor/rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "support/random_matrix.hpp"

namespace moeloom::testing {

/// Normal numbers [rows, cols], rows `kGap` floats further apart than they are long and the first one not at
/// an aligned address; gap_is_untouched() says whether anything was written between the rows.
class GappedMatrix {
 public:
  GappedMatrix(Index rows, Index cols, std::uint64_t seed, double scale = 1.0)
      : storage_(random_matrix(rows + 1, cols + kGap, seed, scale)), before_(Matrix::copy_of(storage_)) {
    view_ = {storage_.row(0) + 1, rows, cols, cols + kGap};
  }

  MatrixView view() { return view_; }
  operator MatrixView() { return view_; }
  operator ConstMatrixView() const { return view_; }

  bool gap_is_untouched() const {
    for (Index i = 0; i < view_.rows; ++i)
      for (Index j = view_.cols; j < view_.cols + kGap; ++j)
        if (storage_.row(i)[j + 1] != before_.row(i)[j + 1]) return false;
    return storage_.row(0)[0] == before_.row(0)[0];
  }

 private:
  static constexpr Index kGap = 5;
  Matrix storage_;
  Matrix before_;
  MatrixView view_;
};

inline std::vector<float> random_vector(Index size, std::uint64_t seed) {
  const Matrix values = random_matrix(1, size, seed);
  return {values.row(0), values.row(0) + size};
}

inline std::vector<double> doubles_of(ConstMatrixView x) {
  std::vector<double> values;
  for (Index i = 0; i < x.rows; ++i) values.insert(values.end(), x.row(i), x.row(i) + x.cols);
  return values;
}

/// What a bf16 product would make of these rows.
inline std::vector<std::uint16_t> rounded_bits_of(ConstMatrixView x) {
  std::vector<std::uint16_t> bits;
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j) bits.push_back(float_to_bf16(x(i, j)));
  return bits;
}
inline std::vector<std::uint16_t> half_bits_of(const Rows& bf16) {
  const auto x = std::get<Bf16View>(bf16);
  std::vector<std::uint16_t> bits;
  for (Index i = 0; i < x.rows; ++i) bits.insert(bits.end(), x.row(i), x.row(i) + x.cols);
  return bits;
}

inline std::vector<std::uint32_t> bits_of(ConstMatrixView x) {
  std::vector<std::uint32_t> bits;
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j) bits.push_back(std::bit_cast<std::uint32_t>(x(i, j)));
  return bits;
}

inline ConstMatrixView row_view(const std::vector<float>& values) {
  return {values.data(), 1, static_cast<Index>(values.size())};
}

/// Largest |got - truth| over 1 + largest |truth|; infinite if a NaN is among them.
inline double worst_error(const std::vector<double>& got, const std::vector<double>& truth) {
  if (got.size() != truth.size()) return INFINITY;
  double worst = 0, largest = 1;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) || std::isnan(truth[i])) return INFINITY;
    worst = std::max(worst, std::abs(got[i] - truth[i]));
    largest = std::max(largest, std::abs(truth[i]));
  }
  return worst / largest;
}

/// d loss / d values[i] by central differences in double: with h = 1e-5 both the h^2 term and the rounding
/// are near 1e-10.
inline std::vector<double> central_differences(std::vector<double>& values,
                                               const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  std::vector<double> slopes;
  for (double& value : values) {
    const double kept = value;
    value = kept + kStep;
    const double above = loss();
    value = kept - kStep;
    const double below = loss();
    value = kept;
    slopes.push_back((above - below) / (2 * kStep));
  }
  return slopes;
}

/// Runs `body` on so many threads, then restores the setting.
template <typename Body>
auto on_threads(int count, Body&& body) {
  const int before = threads();
  set_threads(count);
  auto result = body();
  set_threads(before);
  return result;
}

}  // namespace moeloom::testing
