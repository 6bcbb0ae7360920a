// What both RMSNorms share: the checks at the door, where a group of columns lies, and the order of the
// weight gradient's sum.
#pragma once

#include "moeloom/base/errors.hpp"
#include "moeloom/kernels/elementwise/rmsnorm.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <algorithm>

namespace moeloom::rmsnorm {

inline bool same_shape(ConstMatrixView a, ConstMatrixView b) {
  return a.rows == b.rows && a.cols == b.cols;
}

/// Checks the shapes and returns the groups of a row.
inline Index check_forward(ConstMatrixView x, std::span<const float> weight, ConstRows y,
                           std::span<const float> inv_rms) {
  const Index width = static_cast<Index>(weight.size());
  require(width > 0 && x.cols % width == 0, "the weight's size must divide the columns");
  require(x.rows == y.rows() && x.cols == y.cols(), "input and output must have one shape");
  require(static_cast<Index>(inv_rms.size()) == x.rows * (x.cols / width),
          "inv_rms needs one number for each group of each row");
  return x.cols / width;
}

inline Index check_backward(const NormedRows& normed, ConstMatrixView dy, ConstMatrixView dx,
                            std::span<const float> d_weight) {
  require(same_shape(dy, normed.x), "dy and x must have one shape");
  require(d_weight.size() == normed.weight.size(), "d_weight needs as many numbers as weight");
  return check_forward(normed.x, normed.weight, dx, normed.inv_rms);
}

inline void check_gate(ConstMatrixView x, ConstMatrixView gate) {
  require(same_shape(x, gate), "gate and its gradient must have the shape of x");
}

/// Chunk sums of d_weight [chunks, D] and then their sum onto d_weight, in order. run(count, body) calls
/// body(0) ... body(count - 1); add_chunk(begin, end, sum) adds rows [begin, end) to a chunk's sum.
template <typename Run, typename AddChunk>
void add_in_chunks(Index rows, std::span<float> d_weight, Run&& run, AddChunk&& add_chunk) {
  const Index width = static_cast<Index>(d_weight.size());
  Matrix sums(ceil_div(rows, kSumChunkRows), width);
  run(sums.rows(), [&](Index chunk) {
    const Index begin = chunk * kSumChunkRows;
    add_chunk(begin, std::min(rows, begin + kSumChunkRows), sums.row(chunk));
  });
  for (Index chunk = 0; chunk < sums.rows(); ++chunk) {
    for (Index j = 0; j < width; ++j) d_weight[static_cast<std::size_t>(j)] += sums.row(chunk)[j];
  }
}

}  // namespace moeloom::rmsnorm
