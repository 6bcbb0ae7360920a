#include "routed_tokens.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {

void read_logits(MatrixView router) {
  require(router.cols >= router.rows, "a chosen routing needs a hidden size of at least the experts");
  fill(router, 0);
  for (Index expert = 0; expert < router.rows; ++expert) router(expert, expert) = 1;
}

void write_logits(std::span<const std::int32_t> topk_idx, Index experts, MatrixView tokens) {
  if (tokens.rows == 0) return;
  const std::size_t top_k = topk_idx.size() / at(tokens.rows);
  for (Index t = 0; t < tokens.rows; ++t) {
    std::fill_n(tokens.row(t), experts, -4.0f);
    for (std::size_t k = 0; k < top_k; ++k)
      tokens(t, topk_idx[at(t) * top_k + k]) = 4 - static_cast<float>(k) / 8;
  }
}

}  // namespace moeloom
