// Rows on their way into a product, in fp32 or in bf16.
//
// A bf16 product rounds its rows while it packs them. Rows that are written as bf16 in the first place give
// the same bits, move half the bytes, and are rounded once instead of once a pass. Weights may also be F16,
// which products widen on the way. All of these are views: what they show must outlive them.
#pragma once

#include "moeloom/tensor/dtype.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <array>
#include <cstdint>
#include <type_traits>
#include <variant>

namespace moeloom {

/// Each element is the 16 bits of a bf16; `stride` counts elements.
using Bf16View = BasicView<std::uint16_t>;
using ConstBf16View = BasicView<const std::uint16_t>;

/// The bits of an IEEE half, told apart from bf16 by its type.
struct F16 {
  std::uint16_t bits;
};
using ConstF16View = BasicView<const F16>;

/// A matrix in 16 bits a number, rows one behind the other without gaps: kBF16 or kF16, as `type` says.
template <typename Bits>
struct BasicHalfView {
  Bits* data = nullptr;
  Index rows = 0;
  Index cols = 0;
  DType type = DType::kBF16;

  BasicHalfView() = default;
  BasicHalfView(Bits* data, Index rows, Index cols, DType type)
      : data(data), rows(rows), cols(cols), type(type) {}
  template <typename U>
  requires std::is_same_v<const U, const Bits> BasicHalfView(BasicView<U> bf16)
      : data(bf16.data), rows(bf16.rows), cols(bf16.cols) {}  // NOLINT
  template <typename U>
  requires std::is_same_v<const U, Bits> BasicHalfView(BasicHalfView<U> other)  // NOLINT
      : BasicHalfView(other.data, other.rows, other.cols, other.type) {}

  Index size() const { return rows * cols; }
};
using HalfView = BasicHalfView<std::uint16_t>;
using ConstHalfView = BasicHalfView<const std::uint16_t>;

/// An element of rows becomes `value`, rounded to nearest, ties to even, if it is bf16.
inline void set(float& element, float value) {
  element = value;
}
inline void set(std::uint16_t& element, float value) {
  element = float_to_bf16(value);
}

/// The number that an element of rows stands for, exact.
inline float as_float(float element) {
  return element;
}
inline float as_float(std::uint16_t element) {
  return bf16_to_float(element);
}

inline float as_float(F16 element) {
  return f16_to_float(element.bits);
}

/// Rows to be written, fp32 or bf16; a Matrix converts to the first.
using Rows = std::variant<MatrixView, Bf16View>;

/// Row i, column j, not checked.
inline void set(Rows rows, Index i, Index j, float value) {
  std::visit([=](auto view) { set(view(i, j), value); }, rows);
}

/// Rows [begin, begin + count), not checked.
inline Rows rows_from(Rows rows, Index begin, Index count) {
  return std::visit([=](auto view) { return Rows(view.rows_from(begin, count)); }, rows);
}

/// Rows to be read, in fp32, bf16 or F16. Passed by value, as the views that convert to it.
class ConstRows {
 public:
  ConstRows() : view_(ConstMatrixView()) {}
  ConstRows(ConstMatrixView fp32) : view_(fp32) {}          // NOLINT: each of these is rows
  ConstRows(MatrixView fp32) : view_(fp32) {}               // NOLINT
  ConstRows(const Matrix& fp32) : view_(fp32) {}            // NOLINT
  ConstRows(ConstBf16View bf16) : view_(bf16) {}            // NOLINT
  ConstRows(Bf16View bf16) : view_(ConstBf16View(bf16)) {}  // NOLINT
  ConstRows(ConstF16View f16) : view_(f16) {}               // NOLINT
  ConstRows(ConstHalfView halves) {                         // NOLINT
    if (halves.type == DType::kF16)
      view_ = ConstF16View(reinterpret_cast<const F16*>(halves.data), halves.rows, halves.cols);
    else
      view_ = ConstBf16View(halves.data, halves.rows, halves.cols);
  }
  ConstRows(Rows written)  // NOLINT
      : ConstRows(std::visit([](auto view) { return ConstRows(view); }, written)) {}

  /// use(view) with a ConstMatrixView, a ConstBf16View or a ConstF16View.
  template <typename Use>
  decltype(auto) visit(Use&& use) const {
    return std::visit(use, view_);
  }
  DType type() const { return std::array{DType::kF32, DType::kBF16, DType::kF16}[view_.index()]; }
  Index rows() const {
    return visit([](auto view) { return view.rows; });
  }
  Index cols() const {
    return visit([](auto view) { return view.cols; });
  }
  ConstRows rows_from(Index begin, Index count) const {
    return visit([=](auto view) { return ConstRows(view.rows_from(begin, count)); });
  }
  ConstRows cols_from(Index begin, Index count) const {
    return visit([=](auto view) { return ConstRows(view.cols_from(begin, count)); });
  }
  /// The view itself where type() is kF32; throws ShapeError where it is not.
  ConstMatrixView fp32() const;
  /// The same numbers as floats: where they lie, or widened into `memory`, which must then live as long as
  /// the view that is returned.
  ConstMatrixView widened(Matrix& memory) const;

 private:
  std::variant<ConstMatrixView, ConstBf16View, ConstF16View> view_;
};

/// Floats that a row takes in memory, for kF32 or kBF16: each bf16 row begins where a float could.
inline Index floats_of_row(DType type, Index cols) {
  return type == DType::kF32 ? cols : ceil_div(cols, 2);
}
/// A view [rows, cols] of kF32 or kBF16 on rows * floats_of_row(type, cols) floats that someone else owns.
/// Throws ShapeError for another type.
Rows rows_in(float* memory, DType type, Index rows, Index cols);

/// Memory for rows in fp32 or bf16, kept when it is large enough. Views of it end with it, and with a reshape
/// that needs more.
class RowMemory {
 public:
  /// [rows, cols] of kF32 or kBF16 (else ShapeError), contents unspecified.
  Rows reshape_uninitialised(DType type, Index rows, Index cols);
  /// As the last reshape made them.
  Rows rows() { return rows_in(memory_.row(0), type_, memory_.rows(), cols_); }
  ConstRows rows() const { return const_cast<RowMemory*>(this)->rows(); }

 private:
  Matrix memory_;
  DType type_ = DType::kF32;
  Index cols_ = 0;
};

}  // namespace moeloom
