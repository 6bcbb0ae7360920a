#include "moeloom/model/attention/attention_layer.hpp"

#include "moeloom/base/errors.hpp"

#include <utility>

namespace moeloom {
namespace {

std::variant<ProjectedHeads, LatentHeads> make_heads(const AttentionSpec& spec, const ParameterStore& store) {
  if (spec.latent) return LatentHeads(spec, store);
  return ProjectedHeads(spec, store);
}

std::optional<OutputNorm> make_output_norm(const std::optional<NormSpec>& spec, const ParameterStore& store) {
  if (!spec) return std::nullopt;
  return OutputNorm(Norm::of(store, *spec));
}

}  // namespace

AttentionLayer::AttentionLayer(const AttentionSpec& spec, const NormSpec& norm,
                               const std::optional<NormSpec>& output_norm, const ParameterStore& store)
    : spec_(spec),
      norm_(Norm::of(store, norm)),
      heads_(make_heads(spec, store)),
      output_(Linear::of_module(store, spec.prefix + "o_proj", spec.output_bias)),
      output_norm_(make_output_norm(output_norm, store)) {
  require(output_.in() == spec.output_width(), spec.prefix + "o_proj must read heads * value_dim columns");
}

AttentionShape AttentionLayer::shape(const AttentionContext& context, Index key_length) const {
  return {.sequences = context.sequences,
          .query_length = context.sequence_length,
          .key_length = key_length,
          .heads = spec_.heads,
          .kv_heads = spec_.kv_heads,
          .head_dim = spec_.head_dim,
          .value_dim = spec_.value_dim,
          .window = spec_.window,
          .scale = spec_.scale,
          .segment_offsets = context.segment_offsets};
}

AttentionHeads AttentionLayer::project(const KernelTable& kernels, const AttentionContext& context,
                                       ConstMatrixView hidden) {
  const Rows normed = saved_.normed.reshape_uninitialised(kernels.dense.element, hidden.rows, hidden.cols);
  saved_.context.reshape_uninitialised(hidden.rows, spec_.output_width());
  saved_.log_sum_exp.reshape_uninitialised(hidden.rows, spec_.heads);
  norm_.forward(kernels.rmsnorm, hidden, normed, saved_.inv_rms);
  return std::visit(
      [&](auto& heads) {
        heads.forward(kernels, context, normed);
        return heads.heads();
      },
      heads_);
}

void AttentionLayer::add_output(const KernelTable& kernels, MatrixView hidden) {
  if (!output_norm_) return output_.forward(kernels.dense, saved_.context, hidden, Write::kAdd);
  output_.forward(kernels.dense, saved_.context, output_norm_->input(hidden.rows, hidden.cols));
  output_norm_->forward(kernels.rmsnorm, hidden);
}

void AttentionLayer::forward(const KernelTable& kernels, const AttentionContext& context, MatrixView hidden) {
  saved_.input.reshape_uninitialised(hidden.rows, hidden.cols);
  copy(hidden, saved_.input);
  const AttentionHeads heads = project(kernels, context, hidden);
  attention_forward(shape(context, context.sequence_length), heads, saved_.context, saved_.log_sum_exp);
  add_output(kernels, hidden);
}

KeyValueCache AttentionLayer::make_cache(Index capacity) const {
  return KeyValueCache(capacity, spec_.window, spec_.key_width(), spec_.value_width());
}

void AttentionLayer::forward_cached(const KernelTable& kernels, const AttentionContext& context,
                                    KeyValueCache& cache, MatrixView hidden) {
  if (hidden.rows == 0) return;
  const AttentionHeads heads = project(kernels, context, hidden);
  cache.append(context.position_ids.front(), heads.key, heads.value);
  const ConstAttentionHeads cached{heads.query, cache.keys(), cache.values()};
  attention_forward(shape(context, cached.key.rows), cached, saved_.context, saved_.log_sum_exp);
  cache.drop_unseen();
  add_output(kernels, hidden);
}

void AttentionLayer::backward_output(const KernelTable& kernels, ConstMatrixView d_hidden,
                                     AttentionWorkspace& workspace) {
  workspace.d_context.reshape_uninitialised(d_hidden.rows, spec_.output_width());
  if (!output_norm_) return output_.backward(kernels.dense, d_hidden, saved_.context, workspace.d_context);
  workspace.d_output.reshape_uninitialised(d_hidden.rows, d_hidden.cols);
  output_norm_->backward(kernels.rmsnorm, d_hidden, workspace.d_output);
  output_.backward(kernels.dense, workspace.d_output, saved_.context, workspace.d_context);
}

void AttentionLayer::backward(const KernelTable& kernels, const AttentionContext& context,
                              MatrixView d_hidden, AttentionWorkspace& workspace) {
  workspace.d_normed.reshape_uninitialised(d_hidden.rows, d_hidden.cols);
  backward_output(kernels, d_hidden, workspace);
  std::visit(
      [&](auto& sources) {
        attention_backward(shape(context, context.sequence_length), sources.heads(), saved_.context,
                           saved_.log_sum_exp, workspace.d_context,
                           sources.gradients(d_hidden.rows, workspace.heads));
        sources.backward(kernels, context, std::as_const(saved_).normed.rows(), workspace.heads,
                         workspace.d_normed);
      },
      heads_);
  norm_.backward(kernels.rmsnorm, workspace.d_normed, saved_.input, saved_.inv_rms, workspace.d_normed);
  add(workspace.d_normed, d_hidden);
}

}  // namespace moeloom
