// Random tensors for tests: by seed and position, so a failure can be repeated.
#pragma once

#include "moeloom/base/random.hpp"
#include "moeloom/tensor/rows.hpp"

#include <string>
#include <vector>

namespace moeloom::testing {

/// Normal, deviation `scale`.
inline Matrix random_matrix(Index rows, Index cols, std::uint64_t seed, double scale = 1.0) {
  Matrix m = Matrix::uninitialised(rows, cols);
  const CounterRandom random(seed, stream_of("test"));
  for (Index i = 0; i < rows * cols; ++i)
    m.view().data[i] = static_cast<float>(scale * random.normal(static_cast<std::uint64_t>(i)));
  return m;
}

/// The same numbers, rounded, in `memory`.
inline ConstRows as_bf16(ConstMatrixView x, RowMemory& memory) {
  const Rows rows = memory.reshape_uninitialised(DType::kBF16, x.rows, x.cols);
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j) set(rows, i, j, x(i, j));
  return rows;
}

/// A top-k choice a token without repetition; `favourite` < experts draws every token's first choice there.
inline std::vector<std::int32_t> random_choices(Index tokens, Index top_k, Index experts, std::uint64_t seed,
                                                Index favourite = -1) {
  const CounterRandom random(seed, stream_of("choices"));
  std::vector<std::int32_t> chosen;
  std::uint64_t position = 0;
  for (Index t = 0; t < tokens; ++t) {
    std::vector<std::int32_t> left;
    for (Index e = 0; e < experts; ++e) left.push_back(static_cast<std::int32_t>(e));
    for (Index k = 0; k < top_k; ++k) {
      const bool first_is_given = k == 0 && favourite >= 0;
      const auto pick =
          first_is_given ? static_cast<std::uint64_t>(favourite) : random.below(left.size(), position++);
      chosen.push_back(left[pick]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(pick));
    }
  }
  return chosen;
}

}  // namespace moeloom::testing
