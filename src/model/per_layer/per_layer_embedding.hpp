// A second embedding of each token, with a part for every layer (PerLayerEmbeddingSpec says the formula).
#pragma once

#include "model/parts/layer_spec.hpp"
#include "model/parts/linear.hpp"
#include "model/parts/norm.hpp"
#include "moeloom/kernels/registry.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moeloom {

class PerLayerEmbedding {
 public:
  /// pad_token_id: the look-up of this row trains nothing; a negative one counts from the end.
  PerLayerEmbedding(const PerLayerEmbeddingSpec& spec, std::optional<Index> pad_token_id,
                    const ParameterStore& store);

  /// ids [T], h0 [T, D] -> parts of all layers. Throws ShapeError for an id outside the table.
  void forward(const KernelTable& kernels, std::span<const std::int32_t> ids, ConstMatrixView h0);
  /// [T, P] of the last forward, and where backward looks for its gradient.
  ConstMatrixView of_layer(Index layer) const { return parts_.view().cols_from(layer * width_, width_); }
  MatrixView gradient_of(Index layer) { return d_parts_.view().cols_from(layer * width_, width_); }
  /// Makes room for the gradients, which all layers write.
  void start_backward();
  /// Adds to d_h0 [T, D] and to the gradients.
  void backward(const KernelTable& kernels, std::span<const std::int32_t> ids, ConstMatrixView h0,
                MatrixView d_h0);
  static double bytes_of(const PerLayerEmbeddingSpec& spec, Index tokens) {
    const Index all = spec.width * spec.layers;
    return rows_bytes(tokens, {all, all, all, spec.layers});
  }

 private:
  void add_table_gradient(std::span<const std::int32_t> ids);

  Linear table_;
  Linear projection_;
  Norm norm_;
  Index width_;
  float embedding_scale_;
  float projection_scale_;
  Index padding_row_;  // -1: there is none
  Matrix projected_;   // [T, L P], scaled, before the norm
  Matrix parts_;       // [T, L P]
  Matrix d_parts_;     // [T, L P]
  std::vector<float> inv_rms_;
};

}  // namespace moeloom
