#include "model/attention/attention_heads.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <cmath>

namespace moeloom {
namespace {

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

}  // namespace

ProjectedHeads::ProjectedHeads(const AttentionSpec& spec, const ParameterStore& store)
    : spec_(spec),
      qkv_(Linear::of_module(store, spec.prefix + "qkv_proj", spec.qkv_bias)),
      query_norm_(head_norm(spec, store, "q_norm.weight", spec.query_width())),
      key_norm_(head_norm(spec, store, "k_norm.weight", spec.key_width())) {
  require(qkv_.out() == spec.projected_width(),
          spec.prefix + "qkv_proj must have the rows of q, k and v, and of the gate");
}

AttentionHeads ProjectedHeads::parts_of(MatrixView qkv) const {
  const Index keys = spec_.query_width() + spec_.gate_rows();
  const Index values = keys + spec_.key_width();
  return {qkv.cols_from(0, spec_.query_width()), qkv.cols_from(keys, spec_.key_width()),
          qkv.cols_from(values, spec_.value_width())};
}

AttentionHeads ProjectedHeads::heads() {
  const AttentionHeads parts = parts_of(saved_.projected);
  if (!query_norm_) return parts;
  return {saved_.query, saved_.key, parts.value};
}

void ProjectedHeads::turn(const KernelTable& kernels, const MixerContext& context,
                          const AttentionHeads& heads) const {
  if (spec_.rope == kNoRope) return;
  const RopeTable& rope = context.ropes[at(spec_.rope)];
  kernels.rope.forward(heads.query, spec_.head_dim, context.rows_of_ropes(), rope);
  kernels.rope.forward(heads.key, spec_.head_dim, context.rows_of_ropes(), rope);
}

void ProjectedHeads::turn_back(const KernelTable& kernels, const MixerContext& context, MatrixView d_query,
                               MatrixView d_key) const {
  if (spec_.rope == kNoRope) return;
  const RopeTable& rope = context.ropes[at(spec_.rope)];
  kernels.rope.backward(d_query, spec_.head_dim, context.rows_of_ropes(), rope);
  kernels.rope.backward(d_key, spec_.head_dim, context.rows_of_ropes(), rope);
}

void ProjectedHeads::normalise(const KernelTable& kernels) {
  const AttentionHeads parts = parts_of(saved_.projected);
  saved_.query.reshape_uninitialised(saved_.projected.rows(), spec_.query_width());
  saved_.key.reshape_uninitialised(saved_.projected.rows(), spec_.key_width());
  query_norm_->forward(kernels.rmsnorm, parts.query, saved_.query, saved_.query_inv_rms);
  key_norm_->forward(kernels.rmsnorm, parts.key, saved_.key, saved_.key_inv_rms);
}

void ProjectedHeads::forward(const KernelTable& kernels, const MixerContext& context, ConstRows normed) {
  saved_.projected.reshape_uninitialised(normed.rows(), qkv_.out());
  qkv_.forward(kernels.dense, normed, saved_.projected);
  if (spec_.qk_norm_after_rope) turn(kernels, context, parts_of(saved_.projected));
  if (query_norm_) normalise(kernels);
  if (!spec_.qk_norm_after_rope) turn(kernels, context, heads());
  if (spec_.temperature) apply(*spec_.temperature, context.position_ids, heads().query);
}

AttentionHeads ProjectedHeads::gradients(Index tokens, HeadsWorkspace& workspace) const {
  workspace.d_qkv.reshape_uninitialised(tokens, qkv_.out());
  const AttentionHeads parts = parts_of(workspace.d_qkv);
  if (!query_norm_) return parts;
  workspace.d_query.reshape_uninitialised(tokens, spec_.query_width());
  workspace.d_key.reshape_uninitialised(tokens, spec_.key_width());
  return {workspace.d_query, workspace.d_key, parts.value};
}

void ProjectedHeads::backward(const KernelTable& kernels, const MixerContext& context, ConstRows normed,
                              HeadsWorkspace& workspace, MatrixView d_normed) const {
  const AttentionHeads d_parts = parts_of(workspace.d_qkv);
  const MatrixView d_query = query_norm_ ? workspace.d_query.view() : d_parts.query;
  const MatrixView d_key = query_norm_ ? workspace.d_key.view() : d_parts.key;
  if (spec_.temperature) apply(*spec_.temperature, context.position_ids, d_query);
  if (!spec_.qk_norm_after_rope) turn_back(kernels, context, d_query, d_key);
  if (query_norm_) {
    const Index keys = spec_.query_width() + spec_.gate_rows();
    const ConstMatrixView projected = saved_.projected.view();
    query_norm_->backward(kernels.rmsnorm, d_query, projected.cols_from(0, spec_.query_width()),
                          saved_.query_inv_rms, d_parts.query);
    key_norm_->backward(kernels.rmsnorm, d_key, projected.cols_from(keys, spec_.key_width()),
                        saved_.key_inv_rms, d_parts.key);
  }
  if (spec_.qk_norm_after_rope) turn_back(kernels, context, d_parts.query, d_parts.key);
  qkv_.backward(kernels.dense, workspace.d_qkv, normed, d_normed);
}

}  // namespace moeloom
