#include "model/attention/attention_mixer.hpp"

#include "model/parts/lent_keys.hpp"
#include "moeloom/base/errors.hpp"

#include <utility>

namespace moeloom {
namespace {

std::variant<ProjectedHeads, LatentHeads> make_heads(const AttentionSpec& spec, const ParameterStore& store) {
  if (!spec.latent) return ProjectedHeads(spec, store);
  require(spec.gate_rows() == 0 && !spec.temperature && spec.rope != kNoRope &&
              spec.qk_norm == QkNorm::kNone && !spec.keys_are_values && !spec.value_norm &&
              spec.value_scale == 1 && !spec.keys_of && !spec.lends_keys,
          spec.prefix +
              ": latent attention has a rotary embedding, its own keys and values as they come, and no "
              "temperature, norm of heads or gate beside the queries");
  return LatentHeads(spec, store);
}

std::optional<Linear> make_gate(const AttentionSpec& spec, const ParameterStore& store) {
  if (!spec.gate || spec.gate->with_query) return std::nullopt;
  Linear gate = Linear::of(store, spec.prefix + "gate_proj.weight");
  require(gate.out() == spec.gate_width(), spec.prefix + "gate_proj must have a row for each number of it");
  return gate;
}

}  // namespace

AttentionMixer::AttentionMixer(const AttentionSpec& spec, const ParameterStore& store)
    : spec_(spec),
      heads_(make_heads(spec, store)),
      sums_(store.sums(Placement::kWorld)),
      gate_projection_(make_gate(spec, store)),
      output_(Linear::of_module(store, spec.prefix + "o_proj", spec.output_bias)) {
  require(output_.in() == spec.output_width(), spec.prefix + "o_proj must read heads * value_dim columns");
  require(spec.gate_rows() == 0 || (spec.value_dim == spec.head_dim && !spec.gate->per_head),
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
  if (gate_projection_) {
    gate_.reshape_uninitialised(input.rows(), spec_.gate_width());
    gate_projection_->forward(kernels.dense, input, gate_);
  }
  return std::visit(
      [&](auto& heads) {
        heads.forward(kernels, context, input);
        return heads.heads();
      },
      heads_);
}

ConstAttentionHeads AttentionMixer::heads(const MixerContext& context) {
  const AttentionHeads own = std::visit([](auto& heads) { return heads.heads(); }, heads_);
  if (!spec_.keys_of) return own;
  const LentKeys& lent = context.lent[at(*spec_.keys_of)];
  return {own.query, lent.key, lent.value};
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

ConstMatrixView AttentionMixer::gate() const {
  if (gate_projection_) return gate_;
  return std::get<ProjectedHeads>(heads_).gate();
}

MatrixView AttentionMixer::gate_gradient(AttentionWorkspace& workspace) const {
  if (!gate_projection_) return std::get<ProjectedHeads>(heads_).gate_gradient(workspace.heads);
  workspace.d_gate.reshape_uninitialised(gate_.rows(), gate_.cols());
  return workspace.d_gate;
}

void AttentionMixer::write_output(const KernelTable& kernels, MatrixView output, Write mode) {
  if (spec_.gate)
    output_gate_forward(
        spec_.gate->function, context_, gate(),
        gated_.reshape_uninitialised(kernels.dense.element, output.rows, spec_.output_width()));
  output_.forward(kernels.dense, output_input(), output, mode);
}

void AttentionMixer::forward(const KernelTable& kernels, const MixerContext& context, ConstRows input,
                             MatrixView output, Write mode) {
  const AttentionHeads own = project(kernels, context, input);
  if (spec_.lends_keys) context.lent[at(context.layer)].show(own.key, own.value);
  attend(shape(context, context.sequence_length), heads(context));
  write_output(kernels, output, mode);
}

KeyValueCache AttentionMixer::make_cache(Index capacity) const {
  if (spec_.keys_of) return KeyValueCache(capacity, 0, 0, 0);
  return KeyValueCache(capacity, spec_.reach(), spec_.key_width(), spec_.value_width());
}

void AttentionMixer::forward_cached(const KernelTable& kernels, const MixerContext& context,
                                    KeyValueCache& cache, ConstRows input, MatrixView output, Write mode) {
  const AttentionHeads own = project(kernels, context, input);
  // What is lent is read until the next forward.
  if (spec_.lends_keys) cache.drop_unseen();
  cache.append(context.position_ids.front(), own.key, own.value);
  if (spec_.lends_keys) context.lent[at(context.layer)].cache = &cache;
  const KeyValueCache& seen = spec_.keys_of ? *context.lent[at(*spec_.keys_of)].cache : cache;
  AttentionShape held = shape(context, seen.keys().rows);
  held.first_position = seen.begin();
  attend(held, {own.query, seen.keys(), seen.values()});
  if (!spec_.lends_keys) cache.drop_unseen();
  write_output(kernels, output, mode);
}

void AttentionMixer::backward_gate(AttentionWorkspace& workspace) const {
  output_gate_backward(spec_.gate->function, workspace.d_context, context_, gate(), workspace.d_context,
                       gate_gradient(workspace));
}

void AttentionMixer::backward_sinks(ConstMatrixView d_context) const {
  for_each_leaf(sums_, d_context.rows, [&](Index first, Index rows) {
    add_sink_gradients(sinks_, context_.view().rows_from(first, rows),
                       log_sum_exp_.view().rows_from(first, rows), d_context.rows_from(first, rows),
                       d_sinks_);
    if (sums_ != nullptr) sums_->take(d_sinks_);
  });
}

void AttentionMixer::exchange_gradients(const MixerContext& context, const AttentionHeads& d_heads) const {
  if (spec_.keys_of) context.lent[at(*spec_.keys_of)].add_gradients(d_heads.key, d_heads.value);
  if (spec_.lends_keys) context.lent[at(context.layer)].take_gradients(d_heads.key, d_heads.value);
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
        attention_backward(shape(context, context.sequence_length), heads(context), context_, log_sum_exp_,
                           workspace.d_context, d_heads);
        exchange_gradients(context, d_heads);
        sources.backward(kernels, context, input, workspace.heads, d_input);
      },
      heads_);
  if (gate_projection_)
    gate_projection_->backward(kernels.dense, workspace.d_gate, input, d_input, Write::kAdd);
}

void AttentionMixer::swap_activations(AttentionActivations& other) {
  std::swap(context_, other.context);
  std::swap(gate_, other.gate);
  std::swap(gated_, other.gated);
  std::swap(log_sum_exp_, other.log_sum_exp);
  if (auto* const projected = std::get_if<ProjectedHeads>(&heads_))
    std::swap(projected->activations(), other.projected);
  else
    std::swap(std::get<LatentHeads>(heads_).activations(), other.latent);
}

}  // namespace moeloom
