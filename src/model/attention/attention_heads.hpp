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
  // Of latent attention:
  Matrix d_query_latent;
  Matrix d_key_value;
  Matrix d_key_value_latent;

  static double bytes_of(const AttentionSpec& spec, Index tokens) {
    if (spec.latent)
      return rows_bytes(tokens,
                        {spec.query_width(), spec.key_width(), spec.value_width(), spec.query_width(),
                         spec.latent->q_rank, spec.key_value_width(), spec.latent->key_value_low_width()});
    const bool normed = spec.qk_norm != QkNorm::kNone, reads = spec.keys_of.has_value();
    return rows_bytes(tokens, {spec.projected_width(), normed ? spec.query_width() : 0,
                               normed || reads ? spec.key_width() : 0,
                               spec.values_apart() || reads ? spec.value_width() : 0});
  }
};

/// What ProjectedHeads keep from forward to backward.
struct ProjectedActivations {
  Matrix projected;  // [T, q, gate, k, v], before the norms; turned in place if no norm comes before that
  Matrix query;      // normed and turned
  Matrix key;
  Matrix value;  // where it is not as projected
  std::vector<float> query_inv_rms;
  std::vector<float> key_inv_rms;
  std::vector<float> value_inv_rms;

  static double bytes_of(const AttentionSpec& spec, Index tokens) {
    const bool reads = spec.keys_of.has_value();
    const double parts =
        rows_bytes(tokens, {spec.projected_width(), spec.values_apart() ? spec.value_width() : 0,
                            spec.value_norm && !reads ? spec.kv_heads : 0});
    if (spec.qk_norm == QkNorm::kNone) return parts;
    const bool per_head = spec.qk_norm == QkNorm::kPerHead;
    return parts + rows_bytes(tokens, {spec.query_width(), per_head ? spec.heads : 1}) +
           (reads ? 0.0 : rows_bytes(tokens, {spec.key_width(), per_head ? spec.kv_heads : 1}));
  }
};

/// q, k, v as rows of one weight, with a gate of attention's output behind q where that is the gate's place.
/// Of a layer that reads another's keys and values q alone.
class ProjectedHeads {
 public:
  ProjectedHeads(const AttentionSpec& spec, const ParameterStore& store);

  /// normed [T, D] -> heads; what backward needs is kept.
  void forward(const KernelTable& kernels, const MixerContext& context, ConstRows normed);
  /// Of the last forward; keys and values that another layer lends have no columns here.
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
  // Columns of what qkv_proj gives.
  template <typename T>
  BasicView<T> query_of(BasicView<T> qkv) const {
    return qkv.cols_from(0, spec_.query_width());
  }
  template <typename T>
  BasicView<T> key_of(BasicView<T> qkv) const {
    return qkv.cols_from(spec_.query_width() + spec_.gate_rows(), spec_.keys_of ? 0 : spec_.key_width());
  }
  /// Keys, where these serve as values.
  template <typename T>
  BasicView<T> value_of(BasicView<T> qkv) const {
    if (spec_.keys_are_values) return key_of(qkv);
    const Index width = spec_.keys_of ? 0 : spec_.value_width();
    return qkv.cols_from(qkv.cols - width, width);
  }
  AttentionHeads parts_of(MatrixView qkv) const { return {query_of(qkv), key_of(qkv), value_of(qkv)}; }
  template <typename T>
  BasicView<T> gate_of(BasicView<T> qkv) const {
    return qkv.cols_from(spec_.query_width(), spec_.gate_rows());
  }
  void turn(const KernelTable& kernels, const MixerContext& context, const AttentionHeads& heads) const;
  void turn_back(const KernelTable& kernels, const MixerContext& context, MatrixView d_query,
                 MatrixView d_key) const;
  void normalise(const KernelTable& kernels);
  /// Values from what is projected; keys are not normed or turned yet.
  void make_values(const KernelTable& kernels);
  /// Where gradients() has put them.
  AttentionHeads gradients_in(HeadsWorkspace& workspace) const;
  void backward_norms(const KernelTable& kernels, const AttentionHeads& d_heads, MatrixView d_qkv) const;
  void backward_values(const KernelTable& kernels, MatrixView d_value, MatrixView d_qkv) const;

  AttentionSpec spec_;
  Linear qkv_;
  std::optional<Norm> query_norm_;
  std::optional<Norm> key_norm_;
  std::optional<Norm> value_norm_;
  ProjectedActivations saved_;
};

}  // namespace moeloom
