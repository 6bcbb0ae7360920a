#include "moeloom/tensor/matrix.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>

namespace moeloom {
namespace {

constexpr Index kCacheLine = 64;
constexpr Index kHugePage = Index{2} << 20;
constexpr Index kRowsPerTask = 64;

}  // namespace

AlignedFloats allocate_floats(Index count) {
  const Index bytes = std::max<Index>(count, 1) * static_cast<Index>(sizeof(float));
  const Index alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  const Index rounded = ceil_div(bytes, alignment) * alignment;
  auto* memory = static_cast<float*>(std::aligned_alloc(at(alignment), at(rounded)));
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) madvise(memory, at(rounded), MADV_HUGEPAGE);
  return {memory, [](float* p) { std::free(p); }};
}

double array_bytes(Index count, Index size) {
  const Index bytes = count * size;
  return static_cast<double>(bytes < kHugePage ? bytes : ceil_div(bytes, kHugePage) * kHugePage);
}

double rows_bytes(Index rows, std::initializer_list<Index> cols) {
  double bytes = 0;
  for (const Index width : cols) bytes += array_bytes(rows * width);
  return bytes;
}

Matrix::Matrix(Index rows, Index cols) : Matrix(uninitialised(rows, cols)) {
  fill(*this, 0.0f);
}

Matrix Matrix::uninitialised(Index rows, Index cols) {
  Matrix m;
  m.reshape_uninitialised(rows, cols);
  return m;
}

Matrix Matrix::copy_of(ConstMatrixView source) {
  Matrix m = uninitialised(source.rows, source.cols);
  copy(source, m);
  return m;
}

void Matrix::reshape_uninitialised(Index rows, Index cols) {
  require(rows >= 0 && cols >= 0, "a matrix has no negative size");
  if (storage_ == nullptr || rows * cols > capacity_) {
    *this = {};  // first: what grows never lies there twice
    storage_ = allocate_floats(rows * cols);
    capacity_ = rows * cols;
  }
  rows_ = rows;
  cols_ = cols;
}

void fill(MatrixView x, float value) {
  parallel_blocks(x.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) std::fill_n(x.row(i), x.cols, value);
  });
}

void copy(ConstMatrixView source, MatrixView target) {
  require(source.rows == target.rows && source.cols == target.cols, "copy needs equal shapes");
  parallel_blocks(source.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      std::memcpy(target.row(i), source.row(i), static_cast<std::size_t>(source.cols) * sizeof(float));
  });
}

void add(ConstMatrixView source, MatrixView target) {
  require(source.rows == target.rows && source.cols == target.cols, "add needs equal shapes");
  parallel_blocks(source.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const float* from = source.row(i);
      float* to = target.row(i);
      for (Index j = 0; j < source.cols; ++j) to[j] += from[j];
    }
  });
}

}  // namespace moeloom
