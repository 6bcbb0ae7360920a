#include "model/attention/latent_heads.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 64;

/// body(t) for every row, shared among the threads.
template <typename Body>
void for_rows(Index rows, const Body& body) {
  parallel_blocks(rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) body(t);
  });
}

/// Columns [source_begin, + count) of each of `heads` heads of source -> columns from target_begin on of each
/// head of target. Heads are as wide as the matrix divided by their number.
void copy_heads(Index heads, Index count, ConstMatrixView source, Index source_begin, MatrixView target,
                Index target_begin) {
  const Index source_size = source.cols / heads;
  const Index target_size = target.cols / heads;
  for_rows(source.rows, [&](Index t) {
    for (Index h = 0; h < heads; ++h)
      std::copy_n(source.row(t) + h * source_size + source_begin, count,
                  target.row(t) + h * target_size + target_begin);
  });
}

/// The columns of shared [T, C] -> the first of each head.
void copy_to_heads(Index heads, ConstMatrixView shared, MatrixView target) {
  const Index size = target.cols / heads;
  for_rows(shared.rows, [&](Index t) {
    for (Index h = 0; h < heads; ++h) std::copy_n(shared.row(t), shared.cols, target.row(t) + h * size);
  });
}

/// Its transpose: shared = the sum over heads, in their order.
void sum_of_heads(Index heads, ConstMatrixView source, MatrixView shared) {
  const Index size = source.cols / heads;
  for_rows(shared.rows, [&](Index t) {
    float* sum = shared.row(t);
    std::copy_n(source.row(t), shared.cols, sum);
    for (Index h = 1; h < heads; ++h)
      for (Index j = 0; j < shared.cols; ++j) sum[j] += source.row(t)[h * size + j];
  });
}

}  // namespace

LatentHeads::LatentHeads(const AttentionSpec& spec, const ParameterStore& store)
    : spec_(spec),
      latent_(spec.latent.value()),
      query_up_(Linear::of(store, spec.prefix + (latent_.q_rank > 0 ? "q_b_proj" : "q_proj") + ".weight")),
      key_value_down_(Linear::of_module(store, spec.prefix + "kv_a_proj_with_mqa", spec.qkv_bias)),
      key_value_norm_(
          Norm::of(store, NormSpec{spec.prefix + "kv_a_layernorm.weight", latent_.kv_rank, latent_.norm})),
      key_value_up_(Linear::of(store, spec.prefix + "kv_b_proj.weight")) {
  if (latent_.q_rank > 0)
    query_latent_ = {
        Linear::of_module(store, spec.prefix + "q_a_proj", spec.qkv_bias),
        Norm::of(store, NormSpec{spec.prefix + "q_a_layernorm.weight", latent_.q_rank, latent_.norm})};
  require(spec.heads == spec.kv_heads, "latent attention needs a key head for each query head");
  require(spec.head_dim == latent_.nope_dim + latent_.rope_dim,
          "latent attention: head_dim must be nope_dim + rope_dim");
  require(query_up_.out() == spec.query_width(), spec.prefix + "q must have heads * head_dim rows");
  require(key_value_down_.out() == latent_.key_value_low_width(),
          spec.prefix + "kv_a_proj_with_mqa must have kv_rank + rope_dim rows");
  require(key_value_up_.out() == spec.key_value_width(),
          spec.prefix + "kv_b_proj must have heads * (nope_dim + value_dim) rows");
}

const RopeTable& LatentHeads::rope(const MixerContext& context) const {
  const RopeTable& table = context.ropes[at(spec_.rope)];
  require(table.rotary_dim() == latent_.rope_dim && table.first_dim == 0,
          "latent attention turns rope_dim columns, which come first in its heads");
  return table;
}

void LatentHeads::forward(const KernelTable& kernels, const MixerContext& context, ConstRows normed) {
  forward_query(kernels, normed);
  forward_key_value(kernels, normed);
  const MatrixView key_rope = saved_.key_value_low.view().cols_from(latent_.kv_rank, latent_.rope_dim);
  kernels.rope.forward(saved_.query, spec_.head_dim, context.rows_of_ropes(), rope(context));
  kernels.rope.forward(key_rope, latent_.rope_dim, context.rows_of_ropes(), rope(context));
  copy_to_heads(spec_.heads, key_rope, saved_.key);
}

void LatentHeads::forward_query(const KernelTable& kernels, ConstRows normed) {
  saved_.projected_query.reshape_uninitialised(normed.rows(), spec_.query_width());
  saved_.query.reshape_uninitialised(normed.rows(), spec_.query_width());
  if (query_latent_) {
    saved_.query_low.reshape_uninitialised(normed.rows(), latent_.q_rank);
    saved_.query_low_normed.reshape_uninitialised(normed.rows(), latent_.q_rank);
    query_latent_->down.forward(kernels.dense, normed, saved_.query_low);
    query_latent_->norm.forward(kernels.rmsnorm, saved_.query_low, saved_.query_low_normed,
                                saved_.query_inv_rms);
    query_up_.forward(kernels.dense, saved_.query_low_normed, saved_.projected_query);
  } else {
    query_up_.forward(kernels.dense, normed, saved_.projected_query);
  }
  copy_heads(spec_.heads, latent_.nope_dim, saved_.projected_query, 0, saved_.query, latent_.rope_dim);
  copy_heads(spec_.heads, latent_.rope_dim, saved_.projected_query, latent_.nope_dim, saved_.query, 0);
}

void LatentHeads::forward_key_value(const KernelTable& kernels, ConstRows normed) {
  saved_.key_value_low.reshape_uninitialised(normed.rows(), key_value_down_.out());
  saved_.key_value_low_normed.reshape_uninitialised(normed.rows(), latent_.kv_rank);
  saved_.key_value.reshape_uninitialised(normed.rows(), key_value_up_.out());
  saved_.key.reshape_uninitialised(normed.rows(), spec_.key_width());
  saved_.value.reshape_uninitialised(normed.rows(), spec_.value_width());
  key_value_down_.forward(kernels.dense, normed, saved_.key_value_low);
  key_value_norm_.forward(kernels.rmsnorm, saved_.key_value_low.view().cols_from(0, latent_.kv_rank),
                          saved_.key_value_low_normed, saved_.key_value_inv_rms);
  key_value_up_.forward(kernels.dense, saved_.key_value_low_normed, saved_.key_value);
  copy_heads(spec_.heads, latent_.nope_dim, saved_.key_value, 0, saved_.key, latent_.rope_dim);
  copy_heads(spec_.heads, spec_.value_dim, saved_.key_value, latent_.nope_dim, saved_.value, 0);
}

AttentionHeads LatentHeads::gradients(Index tokens, HeadsWorkspace& workspace) const {
  workspace.d_query.reshape_uninitialised(tokens, spec_.query_width());
  workspace.d_key.reshape_uninitialised(tokens, spec_.key_width());
  workspace.d_value.reshape_uninitialised(tokens, spec_.value_width());
  return {workspace.d_query, workspace.d_key, workspace.d_value};
}

void LatentHeads::backward(const KernelTable& kernels, const MixerContext& context, ConstRows normed,
                           HeadsWorkspace& workspace, MatrixView d_normed) const {
  kernels.rope.backward(workspace.d_query, spec_.head_dim, context.rows_of_ropes(), rope(context));
  backward_query(kernels, normed, workspace, d_normed);
  backward_key_value(kernels, context, normed, workspace, d_normed);
}

void LatentHeads::backward_query(const KernelTable& kernels, ConstRows normed, HeadsWorkspace& w,
                                 MatrixView d_normed) const {
  Matrix& d_projected = w.d_qkv;
  d_projected.reshape_uninitialised(normed.rows(), spec_.query_width());
  copy_heads(spec_.heads, latent_.nope_dim, w.d_query, latent_.rope_dim, d_projected, 0);
  copy_heads(spec_.heads, latent_.rope_dim, w.d_query, 0, d_projected, latent_.nope_dim);
  if (!query_latent_) return query_up_.backward(kernels.dense, d_projected, normed, d_normed);
  w.d_query_latent.reshape_uninitialised(normed.rows(), latent_.q_rank);
  query_up_.backward(kernels.dense, d_projected, saved_.query_low_normed, w.d_query_latent);
  query_latent_->norm.backward(kernels.rmsnorm, w.d_query_latent, saved_.query_low, saved_.query_inv_rms,
                               w.d_query_latent);
  query_latent_->down.backward(kernels.dense, w.d_query_latent, normed, d_normed);
}

void LatentHeads::backward_key_value(const KernelTable& kernels, const MixerContext& context,
                                     ConstRows normed, HeadsWorkspace& w, MatrixView d_normed) const {
  w.d_key_value.reshape_uninitialised(normed.rows(), key_value_up_.out());
  w.d_key_value_latent.reshape_uninitialised(normed.rows(), key_value_down_.out());
  copy_heads(spec_.heads, latent_.nope_dim, w.d_key, latent_.rope_dim, w.d_key_value, 0);
  copy_heads(spec_.heads, spec_.value_dim, w.d_value, 0, w.d_key_value, latent_.nope_dim);

  const MatrixView d_latent = w.d_key_value_latent.view().cols_from(0, latent_.kv_rank);
  const MatrixView d_rope = w.d_key_value_latent.view().cols_from(latent_.kv_rank, latent_.rope_dim);
  sum_of_heads(spec_.heads, w.d_key, d_rope);
  kernels.rope.backward(d_rope, latent_.rope_dim, context.rows_of_ropes(), rope(context));
  key_value_up_.backward(kernels.dense, w.d_key_value, saved_.key_value_low_normed, d_latent);
  key_value_norm_.backward(kernels.rmsnorm, d_latent,
                           saved_.key_value_low.view().cols_from(0, latent_.kv_rank),
                           saved_.key_value_inv_rms, d_latent);
  key_value_down_.backward(kernels.dense, w.d_key_value_latent, normed, d_normed, Write::kAdd);
}

}  // namespace moeloom
