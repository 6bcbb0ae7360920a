#include "model/attention/attention_heads.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <cmath>

namespace moeloom {
namespace {

/// Throws ShapeError for keys or values that cannot be as the specification says.
AttentionSpec checked(const AttentionSpec& spec) {
  if (!spec.keys_are_values || spec.keys_of) return spec;
  require(spec.value_dim == spec.head_dim && spec.qk_norm != QkNorm::kNone && !spec.qk_norm_after_rope,
          spec.prefix + ": keys that are values, too, are as wide, and normed before they are turned");
  return spec;
}

std::optional<Norm> head_norm(const AttentionSpec& spec, const ParameterStore& store, const char* name,
                              Index width) {
  if (spec.qk_norm == QkNorm::kNone) return std::nullopt;
  const Index group = spec.qk_norm == QkNorm::kPerHead ? spec.head_dim : width;
  if (!spec.qk_norm_weight) return Norm::without_weight(group, spec.norm);
  return Norm::of(store, NormSpec{spec.prefix + name, group, spec.norm});
}

/// Row t of x times the temperature of its position; x is queries or their gradient.
void apply(const QueryTemperature& temperature, std::span<const std::int32_t> position_ids, MatrixView x) {
  constexpr Index kRowsPerTask = 64;
  parallel_blocks(x.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      const double steps = std::floor((position_ids[at(t)] + 1.0) / temperature.floor);
      if (steps == 0) continue;
      const auto factor = static_cast<float>(1 + temperature.scale * std::log1p(steps));
      for (Index j = 0; j < x.cols; ++j) x.row(t)[j] *= factor;
    }
  });
}

void scale(float factor, MatrixView x) {
  constexpr Index kRowsPerTask = 64;
  parallel_blocks(x.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t)
      for (Index j = 0; j < x.cols; ++j) x.row(t)[j] *= factor;
  });
}

MatrixView reshaped(Matrix& m, Index rows, Index cols) {
  m.reshape_uninitialised(rows, cols);
  return m;
}

}  // namespace

ProjectedHeads::ProjectedHeads(const AttentionSpec& spec, const ParameterStore& store)
    : spec_(checked(spec)),
      qkv_(Linear::of_module(store, spec.prefix + "qkv_proj", spec.qkv_bias)),
      query_norm_(head_norm(spec, store, "q_norm.weight", spec.query_width())) {
  require(qkv_.out() == spec.projected_width(),
          spec.prefix + "qkv_proj must have the rows of q, k and v, and of the gate");
  if (spec.keys_of) return;
  key_norm_ = head_norm(spec, store, "k_norm.weight", spec.key_width());
  if (spec.value_norm) value_norm_ = Norm::without_weight(spec.value_dim, {.eps = spec.norm.eps});
}

AttentionHeads ProjectedHeads::heads() {
  AttentionHeads heads = parts_of(saved_.projected);
  if (query_norm_) heads.query = saved_.query;
  if (key_norm_) heads.key = saved_.key;
  if (spec_.values_apart()) heads.value = saved_.value;
  return heads;
}

void ProjectedHeads::turn(const KernelTable& kernels, const MixerContext& context,
                          const AttentionHeads& heads) const {
  if (spec_.rope == kNoRope) return;
  const RopeTable& rope = context.ropes[at(spec_.rope)];
  kernels.rope.forward(heads.query, spec_.head_dim, context.rows_of_ropes(), rope);
  if (!spec_.keys_of) kernels.rope.forward(heads.key, spec_.head_dim, context.rows_of_ropes(), rope);
}

void ProjectedHeads::turn_back(const KernelTable& kernels, const MixerContext& context, MatrixView d_query,
                               MatrixView d_key) const {
  if (spec_.rope == kNoRope) return;
  const RopeTable& rope = context.ropes[at(spec_.rope)];
  kernels.rope.backward(d_query, spec_.head_dim, context.rows_of_ropes(), rope);
  if (!spec_.keys_of) kernels.rope.backward(d_key, spec_.head_dim, context.rows_of_ropes(), rope);
}

void ProjectedHeads::normalise(const KernelTable& kernels) {
  const AttentionHeads parts = parts_of(saved_.projected);
  const Index rows = saved_.projected.rows();
  query_norm_->forward(kernels.rmsnorm, parts.query, reshaped(saved_.query, rows, parts.query.cols),
                       saved_.query_inv_rms);
  if (!key_norm_) return;
  key_norm_->forward(kernels.rmsnorm, parts.key, reshaped(saved_.key, rows, parts.key.cols),
                     saved_.key_inv_rms);
}

void ProjectedHeads::make_values(const KernelTable& kernels) {
  if (spec_.values_apart()) {
    const MatrixView projected = value_of(saved_.projected.view());
    const MatrixView value = reshaped(saved_.value, projected.rows, projected.cols);
    if (value_norm_)
      value_norm_->forward(kernels.rmsnorm, projected, value, saved_.value_inv_rms);
    else
      copy(projected, value);
  }
  if (spec_.value_scale != 1) scale(spec_.value_scale, heads().value);
}

void ProjectedHeads::forward(const KernelTable& kernels, const MixerContext& context, ConstRows normed) {
  saved_.projected.reshape_uninitialised(normed.rows(), qkv_.out());
  qkv_.forward(kernels.dense, normed, saved_.projected);
  if (!spec_.keys_of) make_values(kernels);
  if (spec_.qk_norm_after_rope) turn(kernels, context, parts_of(saved_.projected));
  if (query_norm_) normalise(kernels);
  if (!spec_.qk_norm_after_rope) turn(kernels, context, heads());
  if (spec_.temperature) apply(*spec_.temperature, context.position_ids, heads().query);
}

AttentionHeads ProjectedHeads::gradients_in(HeadsWorkspace& workspace) const {
  AttentionHeads d_heads = parts_of(workspace.d_qkv);
  if (query_norm_) d_heads.query = workspace.d_query;
  if (key_norm_ || spec_.keys_of) d_heads.key = workspace.d_key;
  if (spec_.values_apart() || spec_.keys_of) d_heads.value = workspace.d_value;
  return d_heads;
}

AttentionHeads ProjectedHeads::gradients(Index tokens, HeadsWorkspace& workspace) const {
  workspace.d_qkv.reshape_uninitialised(tokens, qkv_.out());
  workspace.d_query.reshape_uninitialised(tokens, query_norm_ ? spec_.query_width() : 0);
  workspace.d_key.reshape_uninitialised(tokens, key_norm_ || spec_.keys_of ? spec_.key_width() : 0);
  workspace.d_value.reshape_uninitialised(tokens,
                                          spec_.values_apart() || spec_.keys_of ? spec_.value_width() : 0);
  return gradients_in(workspace);
}

void ProjectedHeads::backward_norms(const KernelTable& kernels, const AttentionHeads& d_heads,
                                    MatrixView d_qkv) const {
  const ConstMatrixView projected = saved_.projected;
  query_norm_->backward(kernels.rmsnorm, d_heads.query, query_of(projected), saved_.query_inv_rms,
                        query_of(d_qkv));
  if (!key_norm_) return;
  key_norm_->backward(kernels.rmsnorm, d_heads.key, key_of(projected), saved_.key_inv_rms, key_of(d_qkv));
}

/// After backward_norms(), so that the gradient of keys that are values, too, is there.
void ProjectedHeads::backward_values(const KernelTable& kernels, MatrixView d_value, MatrixView d_qkv) const {
  if (spec_.value_scale != 1) scale(spec_.value_scale, d_value);
  const MatrixView d_projected = spec_.keys_are_values ? d_value : value_of(d_qkv);
  if (value_norm_)
    value_norm_->backward(kernels.rmsnorm, d_value, value_of(saved_.projected.view()), saved_.value_inv_rms,
                          d_projected);
  if (spec_.keys_are_values) add(d_projected, key_of(d_qkv));
}

void ProjectedHeads::backward(const KernelTable& kernels, const MixerContext& context, ConstRows normed,
                              HeadsWorkspace& workspace, MatrixView d_normed) const {
  const AttentionHeads d_parts = parts_of(workspace.d_qkv), d_heads = gradients_in(workspace);
  if (spec_.temperature) apply(*spec_.temperature, context.position_ids, d_heads.query);
  if (!spec_.qk_norm_after_rope) turn_back(kernels, context, d_heads.query, d_heads.key);
  if (query_norm_) backward_norms(kernels, d_heads, workspace.d_qkv);
  if (spec_.qk_norm_after_rope) turn_back(kernels, context, d_parts.query, d_parts.key);
  if (!spec_.keys_of) backward_values(kernels, d_heads.value, workspace.d_qkv);
  qkv_.backward(kernels.dense, workspace.d_qkv, normed, d_normed);
}

}  // namespace moeloom
