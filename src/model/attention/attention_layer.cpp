#include "moeloom/model/attention/attention_layer.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/kernels/elementwise/sigmoid_gate.hpp"

#include <utility>

namespace moeloom {
namespace {

std::variant<ProjectedHeads, LatentHeads> make_heads(const AttentionSpec& spec, const ParameterStore& store) {
  if (!spec.latent) return ProjectedHeads(spec, store);
  require(
      !spec.output_gate && !spec.temperature && spec.rope != kNoRope && spec.qk_norm == QkNorm::kNone,
      spec.prefix + ": latent attention has a rotary embedding, and no gate, temperature or norm of heads");
  return LatentHeads(spec, store);
}

std::optional<Norm> make_norm(const std::optional<NormSpec>& spec, const ParameterStore& store) {
  if (!spec) return std::nullopt;
  return Norm::of(store, *spec);
}

}  // namespace

AttentionLayer::AttentionLayer(const AttentionSpec& spec, const std::optional<NormSpec>& norm,
                               const std::optional<NormSpec>& output_norm, const ParameterStore& store,
                               float residual_scale)
    : spec_(spec),
      norm_(make_norm(norm, store)),
      heads_(make_heads(spec, store)),
      sums_(store.sums(Placement::kWorld)),
      output_(Linear::of_module(store, spec.prefix + "o_proj", spec.output_bias)),
      branch_output_(BranchOutput::of(store, output_norm, residual_scale)) {
  require(output_.in() == spec.output_width(), spec.prefix + "o_proj must read heads * value_dim columns");
  require(!spec.output_gate || spec.value_dim == spec.head_dim,
          spec.prefix + "q_proj gives a gate of a query's size, which must be that of a value");
  if (!spec.sinks) return;
  const Parameter& sinks = store.find(spec.prefix + "sinks");
  require(sinks.value.size() == spec.heads, spec.prefix + "sinks must be one a head");
  sinks_ = sinks.value.flat();
  d_sinks_ = sinks.grad.flat();
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
          .chunk = spec_.chunk,
          .scale = spec_.scale,
          .segment_offsets = context.segment_offsets,
          .sinks = sinks_};
}

AttentionHeads AttentionLayer::project(const KernelTable& kernels, const AttentionContext& context,
                                       ConstMatrixView hidden) {
  ConstRows input = hidden;
  if (norm_) {
    const Rows normed = saved_.normed.reshape_uninitialised(kernels.dense.element, hidden.rows, hidden.cols);
    norm_->forward(kernels.rmsnorm, hidden, normed, saved_.inv_rms);
    input = normed;
  }
  return std::visit(
      [&](auto& heads) {
        heads.forward(kernels, context, input);
        return heads.heads();
      },
      heads_);
}

void AttentionLayer::attend(const AttentionShape& shape, const ConstAttentionHeads& heads) {
  saved_.context.reshape_uninitialised(heads.query.rows, spec_.output_width());
  saved_.log_sum_exp.reshape_uninitialised(heads.query.rows, spec_.heads);
  attention_forward(shape, heads, saved_.context, saved_.log_sum_exp);
}

ConstRows AttentionLayer::output_input() const {
  if (spec_.output_gate) return saved_.gated.rows();
  return saved_.context;
}

void AttentionLayer::add_output(const KernelTable& kernels, MatrixView hidden) {
  if (spec_.output_gate)
    sigmoid_gate_forward(
        saved_.context, gated_heads().gate(),
        saved_.gated.reshape_uninitialised(kernels.dense.element, hidden.rows, spec_.output_width()));
  if (!branch_output_) return output_.forward(kernels.dense, output_input(), hidden, Write::kAdd);
  output_.forward(kernels.dense, output_input(), branch_output_->input(hidden.rows, hidden.cols));
  branch_output_->forward(kernels.rmsnorm, hidden);
}

void AttentionLayer::forward(const KernelTable& kernels, const AttentionContext& context, MatrixView hidden) {
  saved_.input.reshape_uninitialised(hidden.rows, hidden.cols);
  copy(hidden, saved_.input);
  attend(shape(context, context.sequence_length), project(kernels, context, hidden));
  add_output(kernels, hidden);
}

KeyValueCache AttentionLayer::make_cache(Index capacity) const {
  return KeyValueCache(capacity, spec_.reach(), spec_.key_width(), spec_.value_width());
}

void AttentionLayer::forward_cached(const KernelTable& kernels, const AttentionContext& context,
                                    KeyValueCache& cache, MatrixView hidden) {
  if (hidden.rows == 0) return;
  const AttentionHeads heads = project(kernels, context, hidden);
  cache.append(context.position_ids.front(), heads.key, heads.value);
  const ConstAttentionHeads cached{heads.query, cache.keys(), cache.values()};
  AttentionShape held = shape(context, cached.key.rows);
  held.first_position = cache.begin();
  attend(held, cached);
  cache.drop_unseen();
  add_output(kernels, hidden);
}

void AttentionLayer::backward_output(const KernelTable& kernels, ConstMatrixView d_hidden,
                                     AttentionWorkspace& workspace) {
  workspace.d_context.reshape_uninitialised(d_hidden.rows, spec_.output_width());
  if (!branch_output_) return output_.backward(kernels.dense, d_hidden, output_input(), workspace.d_context);
  workspace.d_output.reshape_uninitialised(d_hidden.rows, d_hidden.cols);
  branch_output_->backward(kernels.rmsnorm, d_hidden, workspace.d_output);
  output_.backward(kernels.dense, workspace.d_output, output_input(), workspace.d_context);
}

void AttentionLayer::backward_gate(AttentionWorkspace& workspace) const {
  sigmoid_gate_backward(workspace.d_context, saved_.context, gated_heads().gate(), workspace.d_context,
                        gated_heads().gate_gradient(workspace.heads));
}

void AttentionLayer::backward_sinks(ConstMatrixView d_context) const {
  for_each_leaf(sums_, d_context.rows, [&](Index first, Index rows) {
    add_sink_gradients(sinks_, saved_.context.view().rows_from(first, rows),
                       saved_.log_sum_exp.view().rows_from(first, rows), d_context.rows_from(first, rows),
                       d_sinks_);
    if (sums_ != nullptr) sums_->take(d_sinks_);
  });
}

void AttentionLayer::backward(const KernelTable& kernels, const AttentionContext& context,
                              MatrixView d_hidden, AttentionWorkspace& workspace) {
  workspace.d_normed.reshape_uninitialised(d_hidden.rows, d_hidden.cols);
  backward_output(kernels, d_hidden, workspace);
  const ConstRows input = norm_ ? std::as_const(saved_).normed.rows() : ConstRows(saved_.input);
  std::visit(
      [&](auto& sources) {
        const AttentionHeads d_heads = sources.gradients(d_hidden.rows, workspace.heads);
        if (spec_.output_gate) backward_gate(workspace);
        if (!d_sinks_.empty()) backward_sinks(workspace.d_context);
        attention_backward(shape(context, context.sequence_length), sources.heads(), saved_.context,
                           saved_.log_sum_exp, workspace.d_context, d_heads);
        sources.backward(kernels, context, input, workspace.heads, workspace.d_normed);
      },
      heads_);
  if (norm_)
    norm_->backward(kernels.rmsnorm, workspace.d_normed, saved_.input, saved_.inv_rms, workspace.d_normed);
  add(workspace.d_normed, d_hidden);
}

}  // namespace moeloom
