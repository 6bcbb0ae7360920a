#include "model/attention/attention_mixer.hpp"

#include "kernels/elementwise/sigmoid_gate.hpp"
#include "moeloom/base/errors.hpp"

#include <utility>

namespace moeloom {
namespace {

std::variant<ProjectedHeads, LatentHeads> make_heads(const AttentionSpec& spec, const ParameterStore& store) {
  if (!spec.latent) return ProjectedHeads(spec, store);
  require(
      !spec.gate && !spec.temperature && spec.rope != kNoRope && spec.qk_norm == QkNorm::kNone,
      spec.prefix + ": latent attention has a rotary embedding, and no gate, temperature or norm of heads");
  return LatentHeads(spec, store);
}

}  // namespace

AttentionMixer::AttentionMixer(const AttentionSpec& spec, const ParameterStore& store)
    : spec_(spec),
      heads_(make_heads(spec, store)),
      sums_(store.sums(Placement::kWorld)),
      output_(Linear::of_module(store, spec.prefix + "o_proj", spec.output_bias)) {
  require(output_.in() == spec.output_width(), spec.prefix + "o_proj must read heads * value_dim columns");
  require(!spec.gate || spec.value_dim == spec.head_dim,
          spec.prefix + "q_proj gives a gate of a query's size, which must be that of a value");
  if (!spec.sinks) return;
  const Parameter& sinks = store.find(spec.prefix + "sinks");
  require(sinks.value.size() == spec.heads, spec.prefix + "sinks must be one a head");
  sinks_ = sinks.value.flat();
  d_sinks_ = sinks.grad.flat();
}

AttentionShape AttentionMixer::shape(const MixerContext& context, Index key_length) const {
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

AttentionHeads AttentionMixer::project(const KernelTable& kernels, const MixerContext& context,
                                       ConstRows input) {
  return std::visit(
      [&](auto& heads) {
        heads.forward(kernels, context, input);
        return heads.heads();
      },
      heads_);
}

void AttentionMixer::attend(const AttentionShape& shape, const ConstAttentionHeads& heads) {
  context_.reshape_uninitialised(heads.query.rows, spec_.output_width());
  log_sum_exp_.reshape_uninitialised(heads.query.rows, spec_.heads);
  attention_forward(shape, heads, context_, log_sum_exp_);
}

ConstRows AttentionMixer::output_input() const {
  if (spec_.gate) return gated_.rows();
  return context_;
}

void AttentionMixer::write_output(const KernelTable& kernels, MatrixView output, Write mode) {
  if (spec_.gate)
    sigmoid_gate_forward(
        context_, gated_heads().gate(),
        gated_.reshape_uninitialised(kernels.dense.element, output.rows, spec_.output_width()));
  output_.forward(kernels.dense, output_input(), output, mode);
}

void AttentionMixer::forward(const KernelTable& kernels, const MixerContext& context, ConstRows input,
                             MatrixView output, Write mode) {
  attend(shape(context, context.sequence_length), project(kernels, context, input));
  write_output(kernels, output, mode);
}

KeyValueCache AttentionMixer::make_cache(Index capacity) const {
  return KeyValueCache(capacity, spec_.reach(), spec_.key_width(), spec_.value_width());
}

void AttentionMixer::forward_cached(const KernelTable& kernels, const MixerContext& context,
                                    KeyValueCache& cache, ConstRows input, MatrixView output, Write mode) {
  const AttentionHeads heads = project(kernels, context, input);
  cache.append(context.position_ids.front(), heads.key, heads.value);
  const ConstAttentionHeads cached{heads.query, cache.keys(), cache.values()};
  AttentionShape held = shape(context, cached.key.rows);
  held.first_position = cache.begin();
  attend(held, cached);
  cache.drop_unseen();
  write_output(kernels, output, mode);
}

void AttentionMixer::backward_gate(AttentionWorkspace& workspace) const {
  sigmoid_gate_backward(workspace.d_context, context_, gated_heads().gate(), workspace.d_context,
                        gated_heads().gate_gradient(workspace.heads));
}

void AttentionMixer::backward_sinks(ConstMatrixView d_context) const {
  for_each_leaf(sums_, d_context.rows, [&](Index first, Index rows) {
    add_sink_gradients(sinks_, context_.view().rows_from(first, rows),
                       log_sum_exp_.view().rows_from(first, rows), d_context.rows_from(first, rows),
                       d_sinks_);
    if (sums_ != nullptr) sums_->take(d_sinks_);
  });
}

void AttentionMixer::backward(const KernelTable& kernels, const MixerContext& context, ConstRows input,
                              ConstMatrixView d_output, MatrixView d_input, AttentionWorkspace& workspace) {
  workspace.d_context.reshape_uninitialised(d_output.rows, spec_.output_width());
  output_.backward(kernels.dense, d_output, output_input(), workspace.d_context);
  std::visit(
      [&](auto& sources) {
        const AttentionHeads d_heads = sources.gradients(d_output.rows, workspace.heads);
        if (spec_.gate) backward_gate(workspace);
        if (!d_sinks_.empty()) backward_sinks(workspace.d_context);
        attention_backward(shape(context, context.sequence_length), sources.heads(), context_, log_sum_exp_,
                           workspace.d_context, d_heads);
        sources.backward(kernels, context, input, workspace.heads, d_input);
      },
      heads_);
}

void AttentionMixer::swap_activations(AttentionActivations& other) {
  std::swap(context_, other.context);
  std::swap(gated_, other.gated);
  std::swap(log_sum_exp_, other.log_sum_exp);
  if (auto* const projected = std::get_if<ProjectedHeads>(&heads_))
    std::swap(projected->activations(), other.projected);
  else
    std::swap(std::get<LatentHeads>(heads_).activations(), other.latent);
}

}  // namespace moeloom
