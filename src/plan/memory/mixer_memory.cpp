#include "memory/mixer_memory.hpp"

#include "moeloom/kernels/delta_rule.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {
namespace {

constexpr Index kHugePage = Index{2} << 20;

Index norm_groups(const AttentionSpec& spec, Index heads) {
  return spec.qk_norm == QkNorm::kPerHead ? heads : 1;
}

/// ProjectedHeads.
double projected_heads(const AttentionSpec& spec, Index t) {
  const double projected = rows_bytes(t, spec.projected_width());
  if (spec.qk_norm == QkNorm::kNone) return projected;
  return projected + rows_bytes(t, spec.query_width()) + rows_bytes(t, spec.key_width()) +
         rows_bytes(t, norm_groups(spec, spec.heads)) + rows_bytes(t, norm_groups(spec, spec.kv_heads));
}

/// LatentHeads.
double latent_heads(const AttentionSpec& spec, const LatentSpec& latent, Index t) {
  const double query_low = latent.q_rank > 0 ? rows_bytes(t, latent.q_rank, 2) + rows_bytes(t, 1) : 0.0;
  return rows_bytes(t, spec.query_width()) + query_low + rows_bytes(t, latent.kv_rank + latent.rope_dim) +
         rows_bytes(t, latent.kv_rank) + rows_bytes(t, spec.heads * (latent.nope_dim + spec.value_dim)) +
         rows_bytes(t, spec.query_width()) + rows_bytes(t, spec.key_width()) +
         rows_bytes(t, spec.value_width()) + rows_bytes(t, 1);
}

double activations(const AttentionSpec& spec, Index t) {
  const double heads = spec.latent ? latent_heads(spec, *spec.latent, t) : projected_heads(spec, t);
  return rows_bytes(t, spec.output_width(), spec.output_gate ? 2 : 1) + rows_bytes(t, spec.heads) + heads;
}
double activations(const ShortConvSpec& spec, Index t) {
  return rows_bytes(t, 3 * spec.hidden_size) + rows_bytes(t, spec.hidden_size);
}
double activations(const DeltaNetSpec& spec, Index t) {
  return rows_bytes(t, spec.projected_width()) + rows_bytes(t, spec.mixed_width()) +
         rows_bytes(t, spec.value_width(), 2) + rows_bytes(t, spec.value_heads, 3);
}

double workspace(const AttentionSpec& spec, Index t) {
  const double context = rows_bytes(t, spec.output_width());
  const double parts = rows_bytes(t, spec.query_width()) + rows_bytes(t, spec.key_width());
  if (!spec.latent)
    return context + rows_bytes(t, spec.projected_width()) + (spec.qk_norm == QkNorm::kNone ? 0.0 : parts);
  const LatentSpec& latent = *spec.latent;
  return context + parts + rows_bytes(t, spec.value_width()) + rows_bytes(t, spec.query_width()) +
         (latent.q_rank > 0 ? rows_bytes(t, latent.q_rank) : 0.0) +
         rows_bytes(t, spec.heads * (latent.nope_dim + spec.value_dim)) +
         rows_bytes(t, latent.kv_rank + latent.rope_dim);
}
double workspace(const ShortConvSpec& spec, Index t) {
  return activations(spec, t);
}
double workspace(const DeltaNetSpec& spec, Index t) {
  return rows_bytes(t, spec.projected_width()) + rows_bytes(t, spec.value_width());
}

/// Of a backward while it runs.
double scratch(const AttentionSpec&, Index, Index) {
  return 0;
}
double scratch(const ShortConvSpec&, Index, Index) {
  return 0;
}
double scratch(const DeltaNetSpec& spec, Index sequence_length, Index threads) {
  const std::array one_sequence = {Index{0}, sequence_length};
  const Index bytes = delta_rule_backward_bytes(
      {spec.key_heads, spec.value_heads, spec.key_dim, spec.value_dim, one_sequence}, threads);
  return array_bytes(bytes, 1);
}

}  // namespace

double array_bytes(Index count, Index size) {
  const Index bytes = count * size;
  return static_cast<double>(bytes < kHugePage ? bytes : ceil_div(bytes, kHugePage) * kHugePage);
}

double rows_bytes(Index tokens, Index width, Index arrays) {
  return static_cast<double>(arrays) * array_bytes(tokens * width);
}

double mixer_activations(const MixerSpec& mixer, Index tokens) {
  return std::visit([=](const auto& spec) { return activations(spec, tokens); }, mixer);
}

void MixerActivationsOnce::take(const MixerSpec& mixer, Index tokens) {
  double& largest = largest_[mixer.index()];
  largest = std::max(largest, mixer_activations(mixer, tokens));
}

double MixerActivationsOnce::bytes() const {
  return std::accumulate(largest_.begin(), largest_.end(), 0.0);
}

void MixerBuffers::take(const MixerSpec& mixer, Index tokens, Index sequence_length, Index threads) {
  double& largest = largest_[mixer.index()];
  const auto need = [=](const auto& spec) {
    return workspace(spec, tokens) + scratch(spec, sequence_length, threads);
  };
  largest = std::max(largest, std::visit(need, mixer));
}

double MixerBuffers::bytes() const {
  return std::accumulate(largest_.begin(), largest_.end(), 0.0);
}

}  // namespace moeloom
