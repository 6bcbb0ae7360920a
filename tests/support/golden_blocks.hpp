// Golden blocks as matrices, and what a test compares with them.
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {

/// [elements / cols, cols].
inline Matrix golden_matrix(const GoldenBlock& block, const std::string& tensor, Index cols) {
  Matrix m(block.tensors.info(tensor).elements() / cols, cols);
  block.tensors.read(tensor, 0, m.view().flat());
  return m;
}
inline Matrix golden_matrix(const GoldenBlock& block, const std::string& tensor) {
  return golden_matrix(block, tensor, block.shape(tensor).back());
}

inline void expect_golden(const GoldenBlock& block, ConstMatrixView got, const std::string& tensor) {
  const double tolerance = tensor.starts_with("grad.") ? 2e-5 : 1e-5;
  const Matrix whole = Matrix::copy_of(got);
  EXPECT_LE(golden_error(whole.view().flat(), doubles_in(block.tensors, tensor), kBlockFloor), tolerance)
      << block.name << ' ' << tensor;
}

/// body(block) of every case that a test reads (read_by); says how many there were of each reference class.
template <typename Body>
void for_each_golden_block(const std::string& test, Body&& body) {
  std::map<std::string, int> compared;
  for (const auto& folder : golden_cases("blocks", read_by(test))) {
    body(GoldenBlock(folder));
    ++compared[golden_class(folder)];
  }
  for (const auto& [named, count] : compared)
    std::cout << "golden: " << test << " compared " << count << " of " << named << '\n';
}

/// Segments of sequences of one length.
inline std::vector<Index> even_segments(Index sequences, Index length) {
  std::vector<Index> offsets;
  for (Index s = 0; s <= sequences; ++s) offsets.push_back(s * length);
  return offsets;
}

}  // namespace moeloom::testing
