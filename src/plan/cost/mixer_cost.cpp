#include "plan/cost/mixer_cost.hpp"

#include "kernels/delta_rule.hpp"

#include <algorithm>
#include <array>

#include "cost/real.hpp"

namespace moeloom {
namespace {

/// Elements of the weights of its products.
double weights(const AttentionSpec& spec) {
  const double output = real((spec.output_width() + spec.gate_width() - spec.gate_rows()) * spec.hidden_size);
  if (!spec.latent) return output + real(spec.hidden_size * spec.projected_width());
  const LatentSpec& latent = *spec.latent;
  const Index up_from = latent.q_rank > 0 ? latent.q_rank : spec.hidden_size;
  return output + real(up_from * spec.query_width()) + real(latent.q_rank * spec.hidden_size) +
         real(spec.hidden_size * (latent.kv_rank + latent.rope_dim)) +
         real(latent.kv_rank * spec.heads * (latent.nope_dim + spec.value_dim));
}
double weights(const ShortConvSpec& spec) {
  return 4 * real(spec.hidden_size * spec.hidden_size);
}
double weights(const DeltaNetSpec& spec) {
  return real(spec.hidden_size * (spec.projected_width() + spec.value_width()));
}

double between_tokens(const AttentionSpec& spec, Index tokens, Index sequence_length) {
  const bool windowed = spec.window > 0 && spec.window < sequence_length;
  const Index chunk = spec.chunk > 0 ? std::min(spec.chunk, sequence_length) : sequence_length;
  const double keys = windowed ? real(spec.window) : real(chunk + 1) / 2;
  const double a_pair = 8 * real(spec.query_width()) + 6 * real(spec.output_width());  // of all heads
  return real(tokens) * keys * a_pair;
}
double between_tokens(const ShortConvSpec&, Index, Index) {
  return 0;
}
double between_tokens(const DeltaNetSpec& spec, Index tokens, Index sequence_length) {
  if (sequence_length == 0) return 0;
  const std::array one_sequence = {Index{0}, sequence_length};
  const DeltaRuleShape shape{spec.key_heads, spec.value_heads, spec.key_dim, spec.value_dim, one_sequence};
  return real(tokens) / real(sequence_length) *
         (delta_rule_forward_flops(shape) + delta_rule_backward_flops(shape));
}

/// Elements a token, but for norm and residual.
double elementwise(const AttentionSpec& spec) {
  const double turned = spec.qk_norm == QkNorm::kNone ? 4 : 9;
  return turned * real(spec.query_width() + spec.key_width());
}
double elementwise(const ShortConvSpec& spec) {
  return 11 * real(spec.hidden_size);
}
double elementwise(const DeltaNetSpec& spec) {
  return 5 * real(spec.mixed_width()) + 8 * real(spec.value_width());
}

}  // namespace

double mixer_product_flops(const MixerSpec& mixer, Index tokens) {
  return 6 * real(tokens) * std::visit([](const auto& spec) { return weights(spec); }, mixer);
}

double mixing_flops(const MixerSpec& mixer, Index tokens, Index sequence_length) {
  return std::visit([=](const auto& spec) { return between_tokens(spec, tokens, sequence_length); }, mixer);
}

double mixer_elementwise_bytes(const MixerSpec& mixer, Index tokens) {
  return real(sizeof(float)) * real(tokens) *
         std::visit([](const auto& spec) { return 10 * real(spec.hidden_size) + elementwise(spec); }, mixer);
}

}  // namespace moeloom
