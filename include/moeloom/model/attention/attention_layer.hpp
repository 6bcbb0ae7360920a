// The attention half of a decoder layer: perhaps a norm, heads, attention, output projection, perhaps a norm
// of it, residual.
#pragma once

#include "moeloom/model/attention/attention.hpp"
#include "moeloom/model/attention/attention_heads.hpp"
#include "moeloom/model/attention/key_value_cache.hpp"
#include "moeloom/model/attention/latent_heads.hpp"
#include "moeloom/model/branch_output.hpp"

#include <variant>

namespace moeloom {

struct AttentionActivations {
  Matrix input;                // [T, D], the residual stream as it came
  RowMemory normed;            // [T, D], of what the dense products multiply; unused without a norm
  Matrix context;              // [T, H value_dim]
  RowMemory gated;             // [T, H value_dim], what o_proj reads where there is a gate
  Matrix log_sum_exp;          // [T, H]
  std::vector<float> inv_rms;  // [T]
};

struct AttentionWorkspace {
  Matrix d_output;  // [T, D], where a norm stands between the output and the residual
  Matrix d_context;
  Matrix d_normed;
  HeadsWorkspace heads;
};

class AttentionLayer {
 public:
  /// Without `norm` the projections read the residual stream. residual_scale: of what is added to it.
  AttentionLayer(const AttentionSpec& spec, const std::optional<NormSpec>& norm,
                 const std::optional<NormSpec>& output_norm, const ParameterStore& store,
                 float residual_scale = 1);

  /// hidden [T, D]: attention of it is added in place.
  void forward(const KernelTable& kernels, const AttentionContext& context, MatrixView hidden);
  /// For one sequence of up to `capacity` positions; it keeps the layer's window or chunk of them.
  KeyValueCache make_cache(Index capacity) const;
  /// As forward for the next positions of one sequence: context.position_ids[0] positions were in the
  /// cache, which is extended. Keeps nothing for a backward.
  void forward_cached(const KernelTable& kernels, const AttentionContext& context, KeyValueCache& cache,
                      MatrixView hidden);
  /// d_hidden [T, D], gradient of the output, becomes that of the input.
  void backward(const KernelTable& kernels, const AttentionContext& context, MatrixView d_hidden,
                AttentionWorkspace& workspace);

  const AttentionActivations& activations() const { return saved_; }

 private:
  AttentionHeads project(const KernelTable& kernels, const AttentionContext& context, ConstMatrixView hidden);
  void attend(const AttentionShape& shape, const ConstAttentionHeads& heads);
  void add_output(const KernelTable& kernels, MatrixView hidden);
  /// Context, times the gate where there is one.
  ConstRows output_input() const;
  void backward_output(const KernelTable& kernels, ConstMatrixView d_hidden, AttentionWorkspace& workspace);
  /// From the gradient of what o_proj reads to that of the context, in place, and of the gate.
  void backward_gate(AttentionWorkspace& workspace) const;
  void backward_sinks(ConstMatrixView d_context) const;
  const ProjectedHeads& gated_heads() const { return std::get<ProjectedHeads>(heads_); }
  AttentionShape shape(const AttentionContext& context, Index key_length) const;

  AttentionSpec spec_;
  std::optional<Norm> norm_;
  std::variant<ProjectedHeads, LatentHeads> heads_;
  std::span<const float> sinks_;  // [H] or empty
  std::span<float> d_sinks_;      // empty: frozen
  ExactSums* sums_;               // that d_sinks_ is a leaf of
  Linear output_;
  std::optional<BranchOutput> branch_output_;
  AttentionActivations saved_;
};

}  // namespace moeloom
