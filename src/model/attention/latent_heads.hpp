// Multi-head latent attention's queries, keys and values (DeepSeek-V2, 2024, section 2.1): through narrow
// projections with a norm, and one turned part of the key that all heads share.
//
// Inside a head the turned part comes first, [rope, nope], in queries and keys alike: a partial rotary
// embedding turns leading columns, and scores do not depend on the order of columns.
#pragma once

#include "model/attention/attention_heads.hpp"

namespace moeloom {

/// What LatentHeads keep from forward to backward.
struct LatentActivations {
  Matrix projected_query;       // [T, H (nope + rope)]
  Matrix query_low;             // [T, q_rank], before the norm
  Matrix query_low_normed;      //
  Matrix key_value_low;         // [T, kv_rank + rope], before the norm; the rope part is turned
  Matrix key_value_low_normed;  // [T, kv_rank]
  Matrix key_value;             // [T, H (nope + value)]
  Matrix query;                 // [T, H (rope + nope)]
  Matrix key;
  Matrix value;
  std::vector<float> query_inv_rms;
  std::vector<float> key_value_inv_rms;

  static double bytes_of(const AttentionSpec& spec, Index tokens) {
    const LatentSpec& latent = *spec.latent;
    return rows_bytes(tokens, {spec.query_width(), latent.q_rank, latent.q_rank, latent.key_value_low_width(),
                               latent.kv_rank, spec.key_value_width(), spec.query_width(), spec.key_width(),
                               spec.value_width(), latent.q_rank > 0 ? 1 : 0, 1});
  }
};

/// The interface of ProjectedHeads. LatentSpec has the formulas.
class LatentHeads {
 public:
  LatentHeads(const AttentionSpec& spec, const ParameterStore& store);

  void forward(const KernelTable& kernels, const MixerContext& context, ConstRows normed);
  AttentionHeads heads() { return {saved_.query, saved_.key, saved_.value}; }
  AttentionHeads gradients(Index tokens, HeadsWorkspace& workspace) const;
  void backward(const KernelTable& kernels, const MixerContext& context, ConstRows normed,
                HeadsWorkspace& workspace, MatrixView d_normed) const;
  LatentActivations& activations() { return saved_; }

 private:
  struct QueryLatent {
    Linear down;  // q_a_proj
    Norm norm;
  };
  void forward_query(const KernelTable& kernels, ConstRows normed);
  void forward_key_value(const KernelTable& kernels, ConstRows normed);
  void backward_query(const KernelTable& kernels, ConstRows normed, HeadsWorkspace& workspace,
                      MatrixView d_normed) const;
  void backward_key_value(const KernelTable& kernels, const MixerContext& context, ConstRows normed,
                          HeadsWorkspace& workspace, MatrixView d_normed) const;
  const RopeTable& rope(const MixerContext& context) const;

  AttentionSpec spec_;
  LatentSpec latent_;
  std::optional<QueryLatent> query_latent_;
  Linear query_up_;        // q_b_proj, or q_proj
  Linear key_value_down_;  // kv_a_proj_with_mqa
  Norm key_value_norm_;
  Linear key_value_up_;  // kv_b_proj

  LatentActivations saved_;
};

}  // namespace moeloom
