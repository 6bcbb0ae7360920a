// The token mixer that most layers have: heads, attention, perhaps a gate, output projection. Keys and values
// are its own or lent by an earlier layer.
#pragma once

#include "model/attention/attention.hpp"
#include "model/attention/attention_heads.hpp"
#include "model/attention/key_value_cache.hpp"
#include "model/attention/latent_heads.hpp"

#include <variant>

namespace moeloom {

struct AttentionWorkspace {
  Matrix d_context;
  Matrix d_gate;  // of a projection of its own
  HeadsWorkspace heads;

  static double bytes_of(const AttentionSpec& spec, Index tokens) {
    return rows_bytes(tokens, {spec.output_width(), spec.gate_width() - spec.gate_rows()}) +
           HeadsWorkspace::bytes_of(spec, tokens);
  }
};

/// What an AttentionMixer keeps from forward to backward, of heads of either kind.
struct AttentionActivations {
  ProjectedActivations projected;
  LatentActivations latent;
  Matrix context;
  Matrix gate;  // of a projection of its own
  RowMemory gated;
  Matrix log_sum_exp;

  static double bytes_of(const AttentionSpec& spec, Index tokens) {
    const double heads = spec.latent ? LatentActivations::bytes_of(spec, tokens)
                                     : ProjectedActivations::bytes_of(spec, tokens);
    return heads + rows_bytes(tokens, {spec.output_width(), spec.gate_width() - spec.gate_rows(),
                                       spec.gate ? spec.output_width() : 0, spec.heads});
  }
};

class AttentionMixer {
 public:
  using Cache = KeyValueCache;
  using Workspace = AttentionWorkspace;

  /// Throws ShapeError unless the parameters have the shapes of the specification.
  AttentionMixer(const AttentionSpec& spec, const ParameterStore& store);

  /// input [T, D] -> output [T, D], written or added to.
  void forward(const KernelTable& kernels, const MixerContext& context, ConstRows input, MatrixView output,
               Write mode);
  /// For one sequence of up to `capacity` positions; it keeps the layer's window or chunk of them.
  KeyValueCache make_cache(Index capacity) const;
  /// As forward for the next positions of one sequence: context.position_ids[0] positions were in the
  /// cache, which is extended. Keeps nothing for a backward.
  void forward_cached(const KernelTable& kernels, const MixerContext& context, KeyValueCache& cache,
                      ConstRows input, MatrixView output, Write mode);
  /// Of the last forward: d_output [T, D] -> d_input [T, D], replaced.
  void backward(const KernelTable& kernels, const MixerContext& context, ConstRows input,
                ConstMatrixView d_output, MatrixView d_input, AttentionWorkspace& workspace);
  void swap_activations(AttentionActivations& other);

 private:
  /// The gate's too, where that is a projection of its own.
  AttentionHeads project(const KernelTable& kernels, const MixerContext& context, ConstRows input);
  /// Those of the last forward, or the query beside what another layer lends.
  ConstAttentionHeads heads(const MixerContext& context);
  void attend(const AttentionShape& shape, const ConstAttentionHeads& heads);
  void write_output(const KernelTable& kernels, MatrixView output, Write mode);
  /// Context, times the gate where there is one.
  ConstRows output_input() const;
  /// From the gradient of what o_proj reads to that of the context, in place, and of the gate.
  void backward_gate(AttentionWorkspace& workspace) const;
  void backward_sinks(ConstMatrixView d_context) const;
  /// [T, gate_width()] of the last forward, and the place of its gradient.
  ConstMatrixView gate() const;
  MatrixView gate_gradient(AttentionWorkspace& workspace) const;
  /// Gradients of keys and values from readers, or to their lender.
  void exchange_gradients(const MixerContext& context, const AttentionHeads& d_heads) const;
  AttentionShape shape(const MixerContext& context, Index key_length) const;

  AttentionSpec spec_;
  std::variant<ProjectedHeads, LatentHeads> heads_;
  std::span<const float> sinks_;  // [H] or empty
  std::span<float> d_sinks_;      // empty: frozen
  ExactSums* sums_;               // that d_sinks_ is a leaf of
  std::optional<Linear> gate_projection_;
  Linear output_;
  Matrix context_;      // [T, H value_dim]
  Matrix gate_;         // [T, gate_width()] of gate_projection_
  RowMemory gated_;     // [T, H value_dim], what o_proj reads where there is a gate
  Matrix log_sum_exp_;  // [T, H]
};

}  // namespace moeloom
