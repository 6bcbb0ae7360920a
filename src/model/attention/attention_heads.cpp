#include "moeloom/model/attention/attention_heads.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {
namespace {

std::optional<Norm> head_norm(const AttentionSpec& spec, const ParameterStore& store, const char* name,
                              Index width) {
  if (spec.qk_norm == QkNorm::kNone) return std::nullopt;
  const Index group = spec.qk_norm == QkNorm::kPerHead ? spec.head_dim : width;
  return Norm::of(store, NormSpec{spec.prefix + name, group, spec.norm});
}

}  // namespace

ProjectedHeads::ProjectedHeads(const AttentionSpec& spec, const ParameterStore& store)
    : spec_(spec),
      qkv_(Linear::of_module(store, spec.prefix + "qkv_proj", spec.qkv_bias)),
      query_norm_(head_norm(spec, store, "q_norm.weight", spec.query_width())),
      key_norm_(head_norm(spec, store, "k_norm.weight", spec.key_width())) {
  require(qkv_.out() == spec.query_width() + spec.key_width() + spec.value_width(),
          spec.prefix + "qkv_proj must have the rows of q, k and v");
}

AttentionHeads ProjectedHeads::parts_of(MatrixView qkv) const {
  const Index keys = spec_.query_width();
  const Index values = keys + spec_.key_width();
  return {qkv.cols_from(0, spec_.query_width()), qkv.cols_from(keys, spec_.key_width()),
          qkv.cols_from(values, spec_.value_width())};
}

AttentionHeads ProjectedHeads::heads() {
  const AttentionHeads parts = parts_of(projected_);
  if (!query_norm_) return parts;
  return {query_, key_, parts.value};
}

void ProjectedHeads::forward(const KernelTable& kernels, const AttentionContext& context, ConstRows normed) {
  projected_.reshape_uninitialised(normed.rows(), qkv_.out());
  qkv_.forward(kernels.dense, normed, projected_);
  if (query_norm_) {
    const AttentionHeads parts = parts_of(projected_);
    query_.reshape_uninitialised(normed.rows(), spec_.query_width());
    key_.reshape_uninitialised(normed.rows(), spec_.key_width());
    query_norm_->forward(kernels.rmsnorm, parts.query, query_, query_inv_rms_);
    key_norm_->forward(kernels.rmsnorm, parts.key, key_, key_inv_rms_);
  }
  const RopeTable& rope = context.ropes[at(spec_.rope)];
  kernels.rope.forward(heads().query, spec_.head_dim, context.position_ids, rope);
  kernels.rope.forward(heads().key, spec_.head_dim, context.position_ids, rope);
}

AttentionHeads ProjectedHeads::gradients(Index tokens, HeadsWorkspace& workspace) const {
  workspace.d_qkv.reshape_uninitialised(tokens, qkv_.out());
  const AttentionHeads parts = parts_of(workspace.d_qkv);
  if (!query_norm_) return parts;
  workspace.d_query.reshape_uninitialised(tokens, spec_.query_width());
  workspace.d_key.reshape_uninitialised(tokens, spec_.key_width());
  return {workspace.d_query, workspace.d_key, parts.value};
}

void ProjectedHeads::backward(const KernelTable& kernels, const AttentionContext& context, ConstRows normed,
                              HeadsWorkspace& workspace, MatrixView d_normed) const {
  const AttentionHeads d_parts = parts_of(workspace.d_qkv);
  const MatrixView d_query = query_norm_ ? workspace.d_query.view() : d_parts.query;
  const MatrixView d_key = query_norm_ ? workspace.d_key.view() : d_parts.key;
  const RopeTable& rope = context.ropes[at(spec_.rope)];
  kernels.rope.backward(d_query, spec_.head_dim, context.position_ids, rope);
  kernels.rope.backward(d_key, spec_.head_dim, context.position_ids, rope);
  if (query_norm_) {
    const ConstMatrixView queries = projected_.view().cols_from(0, spec_.query_width());
    const ConstMatrixView keys = projected_.view().cols_from(spec_.query_width(), spec_.key_width());
    query_norm_->backward(kernels.rmsnorm, d_query, queries, query_inv_rms_, d_parts.query);
    key_norm_->backward(kernels.rmsnorm, d_key, keys, key_inv_rms_, d_parts.key);
  }
  qkv_.backward(kernels.dense, workspace.d_qkv, normed, d_normed);
}

}  // namespace moeloom
