// Matrix owns, MatrixView borrows. Row-major fp32; a row is contiguous, rows are `stride` floats apart.
//
// Views are pointers: what they show must outlive them, and no access is checked. No collective; a Matrix is
// of this rank alone, and two threads may not change one at once.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>

namespace moeloom {

/// [rows, cols] of T that someone else owns. Passed by value. Empty (null) by default.
template <typename T>
struct BasicView {
  T* data = nullptr;
  Index rows = 0;
  Index cols = 0;
  Index stride = 0;  // from a row to the next, in elements

  BasicView() = default;
  BasicView(T* data, Index rows, Index cols) : BasicView(data, rows, cols, cols) {}
  BasicView(T* data, Index rows, Index cols, Index stride)
      : data(data), rows(rows), cols(cols), stride(stride) {}
  template <typename U>
  requires std::is_same_v<const U, T> BasicView(BasicView<U> other)
      : BasicView(other.data, other.rows, other.cols, other.stride) {}

  T* row(Index i) const { return data + i * stride; }
  T& operator()(Index i, Index j) const { return data[i * stride + j]; }
  Index size() const { return rows * cols; }
  bool contiguous() const { return stride == cols || rows <= 1; }
  /// A part of it: rows, or columns, [begin, begin + count). Not checked.
  BasicView rows_from(Index begin, Index count) const { return {row(begin), count, cols, stride}; }
  BasicView cols_from(Index begin, Index count) const { return {data + begin, rows, count, stride}; }
  /// All elements in order; the view must be contiguous.
  std::span<T> flat() const { return {data, static_cast<std::size_t>(size())}; }
};

using MatrixView = BasicView<float>;
using ConstMatrixView = BasicView<const float>;

/// Memory for `count` floats at a multiple of 64 bytes, not initialised; from 2 MiB on in huge pages, where
/// the system has them. Throws std::bad_alloc.
using AlignedFloats = std::unique_ptr<float[], void (*)(float*)>;
AlignedFloats allocate_floats(Index count);

// Bytes that structures take, from their shapes, before any of it is there; each says so beside its fields
// (bytes_of). In double, because they are added up and divided among ranks.
/// Of one array of `count` elements of `size` bytes: from 2 MiB on it takes whole huge pages of 2 MiB.
double array_bytes(Index count, Index size = sizeof(float));
/// Of several matrices: one [rows, c] for each c of `cols`.
double rows_bytes(Index rows, std::initializer_list<Index> cols);

/// Owns [rows, cols], contiguous, of any size from 0 on. Moves, and copies only by name (copy_of). Views of
/// it end with it, and with a reshape that needs more memory. Making one throws ShapeError for a negative
/// size, std::bad_alloc where there is no memory.
class Matrix {
 public:
  Matrix() : storage_(nullptr, nullptr) {}
  /// Zeros.
  Matrix(Index rows, Index cols);
  /// Contents unspecified: for buffers that are written before they are read.
  static Matrix uninitialised(Index rows, Index cols);
  static Matrix copy_of(ConstMatrixView source);

  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  /// Elements that there is memory for.
  Index capacity() const { return capacity_; }
  /// Row i, not checked.
  float* row(Index i) { return storage_.get() + i * cols_; }
  const float* row(Index i) const { return storage_.get() + i * cols_; }
  MatrixView view() { return {storage_.get(), rows_, cols_}; }
  ConstMatrixView view() const { return {storage_.get(), rows_, cols_}; }
  operator MatrixView() { return view(); }
  operator ConstMatrixView() const { return view(); }
  /// Makes it [rows, cols], contents unspecified; its memory stays the same where capacity() is enough.
  void reshape_uninitialised(Index rows, Index cols);

 private:
  AlignedFloats storage_;
  Index capacity_ = 0;
  Index rows_ = 0;
  Index cols_ = 0;
};

// By the rank's threads; copy and add throw ShapeError for different shapes, and source and target may not
// overlap.
void fill(MatrixView x, float value);
/// target = source.
void copy(ConstMatrixView source, MatrixView target);
/// target += source.
void add(ConstMatrixView source, MatrixView target);

}  // namespace moeloom
