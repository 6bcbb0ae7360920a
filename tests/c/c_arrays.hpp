// Arrays as a caller of moeloom.h has them: in every format, with gaps between rows, at any address.
#pragma once

#include "moeloom/c/moeloom.h"
#include "moeloom/tensor/rows.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {

/// How an array lies.
struct Lie {
  std::int32_t dtype = ML_F32;
  Index gap = 0;     // elements between rows
  Index offset = 0;  // bytes from an address that is a multiple of 64
};
inline std::ostream& operator<<(std::ostream& out, const Lie& lie) {
  return out << "dtype " << lie.dtype << ", gap " << lie.gap << ", offset " << lie.offset;
}
inline const std::vector<Lie> kLies = {{ML_F32},        {ML_F32, 3}, {ML_F32, 0, 4},
                                       {ML_F32, 1, 1},  {ML_BF16},   {ML_BF16, 5, 2},
                                       {ML_BF16, 0, 1}, {ML_F16},    {ML_F16, 2, 3}};

/// Of one rounding to the format, of numbers about 1.
inline double rounding_of(std::int32_t dtype) {
  return dtype == ML_F32 ? 0x1p-23 : dtype == ML_F16 ? 0x1p-11 : 0x1p-8;
}

/// Owns the memory of an array, and the array.
class Array {
 public:
  Array(std::vector<Index> shape, Lie lie = {}) : lie_(lie) {
    array_.ndim = static_cast<std::int32_t>(shape.size());
    array_.dtype = lie.dtype;
    std::ranges::copy(shape, array_.shape);
    Index stride = 1;
    for (Index dim = array_.ndim - 1; dim >= 0; --dim) {
      array_.stride[dim] = stride;
      stride = dim == array_.ndim - 1 ? shape[at(dim)] + lie.gap : stride * shape[at(dim)];
    }
    memory_.assign(at(std::max<Index>(stride, 1) * bytes() + lie.offset + 64), std::byte{0xFF});
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    array_.data = memory_.data() + (64 - address % 64) % 64 + lie.offset;
  }
  /// Of a matrix's numbers, rounded to the format.
  Array(ConstMatrixView values, std::vector<Index> shape, Lie lie = {}) : Array(shape, lie) { set(values); }
  explicit Array(ConstMatrixView values) : Array(values, {values.rows, values.cols}, {}) {}
  /// A template, so that a list in braces is a shape.
  template <std::same_as<Lie> Lying>
  Array(ConstMatrixView values, Lying lie) : Array(values, {values.rows, values.cols}, lie) {}
  static Array integers(const std::vector<Index>& values, std::vector<Index> shape,
                        std::int32_t dtype = ML_I64) {
    Array array(std::move(shape), {dtype});
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto narrow = static_cast<std::int32_t>(values[i]);
      std::memcpy(array.element(static_cast<Index>(i)),
                  dtype == ML_I64 ? static_cast<const void*>(&values[i]) : &narrow, at(array.bytes()));
    }
    return array;
  }
  Array(const Array&) = delete;
  Array(Array&&) = default;
  Array& operator=(Array&&) = default;

  operator const ml_array*() const { return &array_; }
  const ml_array& get() const { return array_; }
  ml_array& get() { return array_; }

  void set(ConstMatrixView values) {
    for (Index i = 0; i < values.size(); ++i)
      write(i, values.data[i / values.cols * values.stride + i % values.cols]);
  }
  /// All numbers as [rows, cols], cols the last dimension.
  Matrix numbers() const {
    const Index cols = array_.shape[array_.ndim - 1];
    Matrix values = Matrix::uninitialised(cols == 0 ? 0 : size() / cols, cols);
    for (Index i = 0; i < size(); ++i) values.view().data[i] = read(i);
    return values;
  }
  std::vector<Index> integers() const {
    std::vector<Index> values(at(size()));
    for (Index i = 0; i < size(); ++i) {
      std::int32_t narrow = 0;
      std::memcpy(array_.dtype == ML_I64 ? static_cast<void*>(&values[at(i)]) : &narrow, element(i),
                  at(bytes()));
      if (array_.dtype == ML_I32) values[at(i)] = narrow;
    }
    return values;
  }
  Index size() const {
    return std::reduce(array_.shape, array_.shape + array_.ndim, Index{1}, std::multiplies<>());
  }

 private:
  Index bytes() const {
    constexpr Index kBytes[] = {4, 2, 2, 8, 4, 1, 8};
    return kBytes[lie_.dtype];
  }
  std::byte* element(Index i) const {
    Index offset = 0;
    for (Index dim = array_.ndim - 1; dim >= 0; i /= array_.shape[dim], --dim)
      offset += i % array_.shape[dim] * array_.stride[dim];
    return static_cast<std::byte*>(array_.data) + offset * bytes();
  }
  void write(Index i, float value) {
    const std::uint16_t half = lie_.dtype == ML_F16 ? float_to_f16(value) : float_to_bf16(value);
    std::memcpy(element(i), lie_.dtype == ML_F32 ? static_cast<const void*>(&value) : &half, at(bytes()));
  }
  float read(Index i) const {
    float value = 0;
    std::uint16_t half = 0;
    std::memcpy(lie_.dtype == ML_F32 ? static_cast<void*>(&value) : &half, element(i), at(bytes()));
    return lie_.dtype == ML_F32 ? value : lie_.dtype == ML_F16 ? f16_to_float(half) : bf16_to_float(half);
  }

  Lie lie_;
  std::vector<std::byte> memory_;
  ml_array array_{};
};

inline Matrix zeros(Index rows, Index cols) {
  return Matrix(rows, cols);
}

/// Every number within `tolerance` of the largest.
inline void expect_near(ConstMatrixView got, ConstMatrixView expected, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(got.rows, expected.rows) << what;
  ASSERT_EQ(got.cols, expected.cols) << what;
  double largest = 1e-30, gap = 0;
  for (Index i = 0; i < got.rows; ++i)
    for (Index j = 0; j < got.cols; ++j) {
      largest = std::max(largest, std::abs(static_cast<double>(expected(i, j))));
      const double difference =
          std::abs(static_cast<double>(got(i, j)) - static_cast<double>(expected(i, j)));
      gap = std::isnan(difference) ? 1e30 : std::max(gap, difference);
    }
  EXPECT_LE(gap, tolerance * largest) << what;
}

#define EXPECT_OK(call) EXPECT_EQ(call, ML_OK) << ml_last_error()
#define EXPECT_STATUS(call, status, text)                                                     \
  do {                                                                                        \
    EXPECT_EQ(call, status) << ml_last_error();                                               \
    EXPECT_NE(std::string(ml_last_error()).find(text), std::string::npos) << ml_last_error(); \
  } while (false)

}  // namespace moeloom::testing
