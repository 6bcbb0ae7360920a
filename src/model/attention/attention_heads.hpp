// Where attention's queries, keys and values come from: one projection of the normed input, its parts
// perhaps normed and turned, in either order.
#pragma once

#include "model/attention/attention.hpp"
#include "model/parts/layer_spec.hpp"
#include "model/parts/linear.hpp"
#include "model/parts/mixer_context.hpp"
#include "model/parts/norm.hpp"
#include "moeloom/kernels/registry.hpp"

#include <optional>

namespace moeloom {

/// Buffers of heads' backward that all layers share.
struct HeadsWorkspace {
  Matrix d_query;
  Matrix d_key;
  Matrix d_value;
  Matrix d_qkv;
  // Of latent attention.
  Matrix d_query_latent;
  Matrix d_key_value;
  Matrix d_key_value_latent;

  static double bytes_of(const AttentionSpec& spec, Index tokens) {
    const bool normed = spec.qk_norm != QkNorm::kNone || spec.latent;
    const double parts = normed ? rows_bytes(tokens, {spec.query_width(), spec.key_width()}) : 0.0;
    if (!spec.latent) return parts + rows_bytes(tokens, {spec.projected_width()});
    return parts + rows_bytes(tokens, {spec.value_width(), spec.query_width(), spec.latent->q_rank,
                                       spec.key_value_width(), spec.latent->key_value_low_width()});
  }
};

/// What ProjectedHeads keep from forward to backward.
struct ProjectedActivations {
  Matrix projected;  // [T, q, gate, k, v], before the norms; turned in place if no norm comes before that
  Matrix query;      // normed and turned
  Matrix key;
  std::vector<float> query_inv_rms;
  std::vector<float> key_inv_rms;

  static double bytes_of(const AttentionSpec& spec, Index tokens) {
    const double as_projected = rows_bytes(tokens, {spec.projected_width()});
    if (spec.qk_norm == QkNorm::kNone) return as_projected;
    const bool per_head = spec.qk_norm == QkNorm::kPerHead;
    return as_projected + rows_bytes(tokens, {spec.query_width(), spec.key_width(), per_head ? spec.heads : 1,
                                              per_head ? spec.kv_heads : 1});
  }
};

/// q, k, v as rows of one weight, with a gate of attention's output behind q where there is one.
class ProjectedHeads {
 public:
  ProjectedHeads(const AttentionSpec& spec, const ParameterStore& store);

  /// normed [T, D] -> heads; what backward needs is kept.
  void forward(const KernelTable& kernels, const MixerContext& context, ConstRows normed);
  /// Of the last forward.
  AttentionHeads heads();
  /// [T, gate_width()] of the last forward.
  ConstMatrixView gate() const { return gate_of(saved_.projected.view()); }
  /// Where attention's backward puts the gradients of the heads.
  AttentionHeads gradients(Index tokens, HeadsWorkspace& workspace) const;
  /// And of the gate, after gradients().
  MatrixView gate_gradient(HeadsWorkspace& workspace) const { return gate_of(workspace.d_qkv.view()); }
  /// From those gradients to that of normed, replaced.
  void backward(const KernelTable& kernels, const MixerContext& context, ConstRows normed,
                HeadsWorkspace& workspace, MatrixView d_normed) const;
  ProjectedActivations& activations() { return saved_; }

 private:
  AttentionHeads parts_of(MatrixView qkv) const;
  template <typename T>
  BasicView<T> gate_of(BasicView<T> qkv) const {
    return qkv.cols_from(spec_.query_width(), spec_.gate_rows());
  }
  void turn(const KernelTable& kernels, const MixerContext& context, const AttentionHeads& heads) const;
  void turn_back(const KernelTable& kernels, const MixerContext& context, MatrixView d_query,
                 MatrixView d_key) const;
  void normalise(const KernelTable& kernels);

  AttentionSpec spec_;
  Linear qkv_;
  std::optional<Norm> query_norm_;
  std::optional<Norm> key_norm_;
  ProjectedActivations saved_;
};

}  // namespace moeloom
