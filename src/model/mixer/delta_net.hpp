// The gated delta net of Qwen3-Next: linear attention by the gated delta rule (delta_rule.hpp), behind a
// short convolution and before a gated norm of each head.
#pragma once

#include "kernels/delta_gates.hpp"
#include "kernels/delta_rule.hpp"
#include "model/mixer/convolution.hpp"
#include "model/mixer/recurrent_state.hpp"
#include "model/parts/layer_spec.hpp"
#include "model/parts/mixer_context.hpp"
#include "model/parts/norm.hpp"
#include "moeloom/kernels/registry.hpp"

namespace moeloom {

struct DeltaNetWorkspace {
  Matrix d_normed;
  Matrix d_projected;

  static double bytes_of(const DeltaNetSpec& spec, Index tokens) {
    return rows_bytes(tokens, {spec.value_width(), spec.projected_width()});
  }
};

/// What a DeltaNet keeps from forward to backward.
struct DeltaNetActivations {
  Matrix projected;  // [T, q, k, v, z, b, a]
  Matrix mixed;      // [T, q, k, v] behind the convolution; the rule puts its deltas over v
  Matrix beta;       // [T, value_heads]
  Matrix log_decay;
  Matrix read;    // [T, value width], what the rule reads from its state
  Matrix normed;  // [T, value width], what out_proj reads
  std::vector<float> inv_rms;

  static double bytes_of(const DeltaNetSpec& spec, Index tokens) {
    return rows_bytes(tokens, {spec.projected_width(), spec.mixed_width(), spec.value_heads, spec.value_heads,
                               spec.value_width(), spec.value_width(), spec.value_heads});
  }
};

/// [q, k, v, z, b, a] = in_proj x;  [q, k, v] = silu(conv1d [q, k, v]);  beta, log_decay of b, a;
/// output = out_proj(norm(rule(q, k, v, log_decay, beta)) * silu(z)). What is padding enters as zeros.
class DeltaNet {
 public:
  using Cache = RecurrentState;
  using Workspace = DeltaNetWorkspace;

  /// Throws ShapeError unless the parameters have the shapes of the specification.
  DeltaNet(const DeltaNetSpec& spec, const ParameterStore& store);

  /// input [T, D] -> output [T, D], written or added to.
  void forward(const KernelTable& kernels, const MixerContext& context, ConstRows input, MatrixView output,
               Write mode);
  RecurrentState make_cache(Index capacity) const;
  /// The same for the next positions of one sequence. Keeps nothing for a backward.
  void forward_cached(const KernelTable& kernels, const MixerContext& context, RecurrentState& state,
                      ConstRows input, MatrixView output, Write mode);
  /// Of the last forward, which is used up: d_output [T, D] -> d_input [T, D], replaced.
  void backward(const KernelTable& kernels, const MixerContext& context, ConstRows input,
                ConstMatrixView d_output, MatrixView d_input, DeltaNetWorkspace& workspace);
  void swap_activations(DeltaNetActivations& other) { std::swap(saved_, other); }
  /// Of a backward while it runs, on so many threads.
  static double scratch_bytes(const DeltaNetSpec& spec, Index sequence_length, Index threads);

 private:
  /// A weight of numbers, one a head or one a column of a head.
  struct Numbers {
    std::span<const float> values;
    std::span<float> gradients;
  };
  static Numbers numbers_of(const ParameterStore& store, const std::string& name, Index count);

  void project(const KernelTable& kernels, const MixerContext& context, ConstRows input);
  /// From the rule's output to the layer's.
  void add_output(const KernelTable& kernels, MatrixView output, Write mode);
  void backward_norm(const KernelTable& kernels, MatrixView d_normed, MatrixView d_z) const;
  void backward_gates(MatrixView d_projected) const;
  DeltaRuleInputs rule_inputs() const;
  MatrixView delta() { return spec_.values_of(saved_.mixed.view()); }

  DeltaNetSpec spec_;
  Linear in_;
  Linear out_;
  Convolution convolution_;
  Numbers a_log_;    // [value_heads]
  Numbers dt_bias_;  // [value_heads]
  Norm norm_;        // [value_dim]

  DeltaNetActivations saved_;
};

}  // namespace moeloom
