#include "model/per_layer/per_layer_embedding.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/scaled.hpp"

namespace moeloom {
namespace {

constexpr Index kTokensPerTask = 16;
constexpr float kRootHalf = 0.70710678f;

}  // namespace

PerLayerEmbedding::PerLayerEmbedding(const PerLayerEmbeddingSpec& spec, std::optional<Index> pad_token_id,
                                     const ParameterStore& store)
    : table_(Linear::of(store, "model.embed_tokens_per_layer.weight")),
      projection_(Linear::of(store, "model.per_layer_model_projection.weight")),
      norm_(Norm::of(store, spec.norm)),
      width_(spec.width),
      embedding_scale_(spec.embedding_scale),
      projection_scale_(spec.projection_scale),
      padding_row_(pad_token_id.value_or(-1)) {
  if (pad_token_id && *pad_token_id < 0) padding_row_ += spec.vocab_size;
  require(spec.norm.width == width_ && table_.in() == spec.layers * width_ &&
              projection_.out() == spec.layers * width_,
          "per-layer embeddings have so many parts of one width as there are layers");
}

void PerLayerEmbedding::forward(const KernelTable& kernels, std::span<const std::int32_t> ids,
                                ConstMatrixView h0) {
  for (const std::int32_t id : ids)
    require(id >= 0 && id < table_.out(), "a token id lies outside the vocabulary of per-layer embeddings");
  projected_.reshape_uninitialised(h0.rows, projection_.out());
  projection_.forward(kernels.dense, h0, projected_);
  copy_scaled(projected_, projection_scale_, projected_);
  parts_.reshape_uninitialised(h0.rows, projection_.out());
  norm_.forward(kernels.rmsnorm, projected_, parts_, inv_rms_);
  parallel_blocks(h0.rows, kTokensPerTask, [&](Index begin, Index end) {
    table_.weights().visit([&](auto weight) {
      for (Index t = begin; t < end; ++t) {
        float* const part = parts_.row(t);
        for (Index j = 0; j < parts_.cols(); ++j)
          part[j] = (part[j] + as_float(weight(ids[at(t)], j)) * embedding_scale_) * kRootHalf;
      }
    });
  });
}

void PerLayerEmbedding::start_backward() {
  d_parts_.reshape_uninitialised(parts_.rows(), parts_.cols());
}

void PerLayerEmbedding::backward(const KernelTable& kernels, std::span<const std::int32_t> ids,
                                 ConstMatrixView h0, MatrixView d_h0) {
  copy_scaled(d_parts_, kRootHalf, d_parts_);
  add_table_gradient(ids);
  norm_.backward(kernels.rmsnorm, d_parts_, projected_, inv_rms_, d_parts_);
  copy_scaled(d_parts_, projection_scale_, d_parts_);
  projection_.backward(kernels.dense, d_parts_, h0, d_h0, Write::kAdd);
}

void PerLayerEmbedding::add_table_gradient(std::span<const std::int32_t> ids) {
  if (table_.grad.rows == 0) return;
  for_each_leaf(table_.sums, std::ssize(ids), [&](Index first, Index rows) {
    for (Index t = first; t < first + rows; ++t) {
      if (ids[at(t)] == padding_row_) continue;
      float* const gradient = table_.grad.row(ids[at(t)]);
      const float* const d = d_parts_.row(t);
      for (Index j = 0; j < d_parts_.cols(); ++j) gradient[j] += d[j] * embedding_scale_;
    }
    if (table_.sums == nullptr) return;
    // Of the rows of its ids alone; taken again, a row is zeros.
    for (Index t = first; t < first + rows; ++t) table_.sums->take(table_.grad.rows_from(ids[at(t)], 1));
  });
}

}  // namespace moeloom
