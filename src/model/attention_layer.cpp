#include "moeloom/model/attention_layer.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {
namespace {

std::string prefix(Index layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

}  // namespace

AttentionLayer::AttentionLayer(const ModelConfig& config, const ParameterStore& store, Index layer)
    : heads_(config.num_attention_heads),
      kv_heads_(config.num_key_value_heads),
      head_dim_(config.head_dim),
      query_width_(config.attention_width()),
      kv_width_(config.kv_width()),
      epsilon_(static_cast<float>(config.rms_norm_eps)),
      norm_(Norm::of(store, prefix(layer) + "input_layernorm.weight")),
      query_norm_(Norm::of(store, prefix(layer) + "self_attn.q_norm.weight")),
      key_norm_(Norm::of(store, prefix(layer) + "self_attn.k_norm.weight")),
      qkv_(Linear::of(store, prefix(layer) + "self_attn.qkv_proj.weight")),
      output_(Linear::of(store, prefix(layer) + "self_attn.o_proj.weight")) {}

AttentionShape AttentionLayer::shape(const AttentionContext& context, Index key_length) const {
  return {.sequences = context.sequences,
          .query_length = context.sequence_length,
          .key_length = key_length,
          .heads = heads_,
          .kv_heads = kv_heads_,
          .head_dim = head_dim_};
}

void AttentionLayer::project(const KernelTable& kernels, const AttentionContext& context,
                             ConstMatrixView hidden) {
  const Index tokens = hidden.rows;
  saved_.normed.reshape_uninitialised(tokens, hidden.cols);
  saved_.qkv.reshape_uninitialised(tokens, qkv_.out());
  saved_.query.reshape_uninitialised(tokens, query_width_);
  saved_.key.reshape_uninitialised(tokens, kv_width_);
  saved_.context.reshape_uninitialised(tokens, query_width_);
  saved_.log_sum_exp.reshape_uninitialised(tokens, heads_);
  saved_.inv_rms.resize(at(tokens));
  saved_.query_inv_rms.resize(at(tokens * heads_));
  saved_.key_inv_rms.resize(at(tokens * kv_heads_));
  kernels.rmsnorm.forward(hidden, norm_.weight, {epsilon_}, saved_.normed, saved_.inv_rms);
  qkv_.forward(saved_.normed, saved_.qkv);
  kernels.rmsnorm.forward(query_part(saved_.qkv), query_norm_.weight, {epsilon_}, saved_.query,
                          saved_.query_inv_rms);
  kernels.rmsnorm.forward(key_part(saved_.qkv), key_norm_.weight, {epsilon_}, saved_.key, saved_.key_inv_rms);
  kernels.rope.forward(saved_.query, head_dim_, context.position_ids, context.rope);
  kernels.rope.forward(saved_.key, head_dim_, context.position_ids, context.rope);
}

void AttentionLayer::forward(const KernelTable& kernels, const AttentionContext& context, MatrixView hidden) {
  saved_.input.reshape_uninitialised(hidden.rows, hidden.cols);
  copy(hidden, saved_.input);
  project(kernels, context, hidden);
  attention_forward(shape(context, context.sequence_length), saved_.query, saved_.key, value_part(saved_.qkv),
                    saved_.context, saved_.log_sum_exp);
  output_.forward(saved_.context, hidden, Write::kAdd);
}

void AttentionLayer::forward_cached(const KernelTable& kernels, const AttentionContext& context,
                                    KeyValueCache& cache, MatrixView hidden) {
  if (hidden.rows == 0) return;
  const Index past = context.position_ids.front();
  const Index total = past + hidden.rows;
  require(total <= cache.key.rows(), "the key-value cache is full");
  project(kernels, context, hidden);
  copy(saved_.key, cache.key.view().rows_from(past, hidden.rows));
  copy(value_part(saved_.qkv), cache.value.view().rows_from(past, hidden.rows));
  attention_forward(shape(context, total), saved_.query, cache.key.view().rows_from(0, total),
                    cache.value.view().rows_from(0, total), saved_.context, saved_.log_sum_exp);
  output_.forward(saved_.context, hidden, Write::kAdd);
}

void AttentionLayer::backward(const KernelTable& kernels, const AttentionContext& context,
                              MatrixView d_hidden, AttentionWorkspace& workspace) {
  const Index tokens = d_hidden.rows;
  workspace.d_context.reshape_uninitialised(tokens, query_width_);
  workspace.d_query.reshape_uninitialised(tokens, query_width_);
  workspace.d_key.reshape_uninitialised(tokens, kv_width_);
  workspace.d_qkv.reshape_uninitialised(tokens, qkv_.out());
  workspace.d_normed.reshape_uninitialised(tokens, d_hidden.cols);

  output_.backward(d_hidden, saved_.context, workspace.d_context);
  attention_backward(shape(context, context.sequence_length), saved_.query, saved_.key,
                     value_part(saved_.qkv), saved_.context, saved_.log_sum_exp, workspace.d_context,
                     workspace.d_query, workspace.d_key, value_part(workspace.d_qkv));
  kernels.rope.backward(workspace.d_query, head_dim_, context.position_ids, context.rope);
  kernels.rope.backward(workspace.d_key, head_dim_, context.position_ids, context.rope);
  kernels.rmsnorm.backward(workspace.d_query, query_part(saved_.qkv), query_norm_.weight, {epsilon_},
                           saved_.query_inv_rms, query_part(workspace.d_qkv), query_norm_.grad);
  kernels.rmsnorm.backward(workspace.d_key, key_part(saved_.qkv), key_norm_.weight, {epsilon_},
                           saved_.key_inv_rms, key_part(workspace.d_qkv), key_norm_.grad);
  qkv_.backward(workspace.d_qkv, saved_.normed, workspace.d_normed);
  kernels.rmsnorm.backward(workspace.d_normed, saved_.input, norm_.weight, {epsilon_}, saved_.inv_rms,
                           workspace.d_normed, norm_.grad);
  add(workspace.d_normed, d_hidden);
}

}  // namespace moeloom
