// Cross entropy of the head and its gradient in one pass over chunks of rows: logits [T, V] never exist
// whole, and those of rows without a target not at all.
#pragma once

#include "moeloom/kernels/dense.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

/// logits = logit_scale * (hidden weight^T + bias), or logit_cap tanh(that / logit_cap).
struct HeadWeights {
  ConstRows weight;                  // [V, D]
  MatrixView grad = {};              // without rows: frozen, not computed
  std::span<const float> bias = {};  // [V] or empty
  std::span<float> bias_grad = {};   // empty: frozen, not computed
  float logit_scale = 1;
  float logit_cap = 0;  // Gemma4's; 0: none
};

/// [T, D] -> [T, V].
void head_logits(const DenseKernel& kernel, ConstMatrixView hidden, const HeadWeights& head,
                 MatrixView logits);

/// Sum of -log p(target) over rows of `hidden` [T, D] whose target is not kIgnored.
double head_loss(const DenseKernel& kernel, ConstMatrixView hidden, const HeadWeights& head,
                 std::span<const std::int32_t> targets);

/// -log p(target) of each row; 0 where the target is kIgnored.
std::vector<double> head_token_losses(const DenseKernel& kernel, ConstMatrixView hidden,
                                      const HeadWeights& head, std::span<const std::int32_t> targets);

/// The same, with gradients of scale * sum: d_hidden [T, D] replaced, head.grad and bias_grad added to (rows
/// in chunks of kSumChunkRows, in order). Throws ShapeError for a target outside [0, V) that is not kIgnored.
double head_loss_backward(const DenseKernel& kernel, ConstMatrixView hidden, const HeadWeights& head,
                          std::span<const std::int32_t> targets, float scale, MatrixView d_hidden);

/// Of the logits that are held at once, on so many threads.
double logits_bytes(Index tokens, Index words, Index threads);

}  // namespace moeloom
