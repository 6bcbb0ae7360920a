// What a layer adds to the residual stream of its part of the per-layer embeddings (Gemma 3n, Gemma4).
#pragma once

#include "model/parts/branch_output.hpp"
#include "model/parts/layer_spec.hpp"
#include "model/parts/linear.hpp"
#include "moeloom/kernels/registry.hpp"

namespace moeloom {

/// Buffers that all layers share.
struct PerLayerInputWorkspace {
  RowMemory activated;  // [T, P]
  Matrix gate;          // [T, P], and its gradient
  Matrix d_activated;   // [T, P]
  Matrix d_output;      // [T, D]
  Matrix d_input;       // [T, D]

  static double bytes_of(const PerLayerInputSpec& spec, Index tokens) {
    return rows_bytes(tokens, {spec.width, spec.width, spec.width, spec.hidden_size, spec.hidden_size});
  }
};

class PerLayerInput {
 public:
  PerLayerInput(const PerLayerInputSpec& spec, const ParameterStore& store);

  /// hidden [T, D] += of `u` [T, P].
  void forward(const KernelTable& kernels, ConstMatrixView u, MatrixView hidden,
               PerLayerInputWorkspace& workspace);
  /// Of the last forward, which it uses up: d_hidden [T, D], gradient of the output, becomes that of the
  /// input; d_u [T, P] is replaced.
  void backward(const KernelTable& kernels, MatrixView d_hidden, MatrixView d_u,
                PerLayerInputWorkspace& workspace);
  /// Of what it keeps from forward to backward, whatever is made again.
  static double bytes_of(const PerLayerInputSpec& spec, Index tokens);

 private:
  /// Where an adapter drops inputs.
  std::vector<std::uint64_t> keys() const;

  Linear gate_;
  Linear projection_;
  GatedActivation activation_;
  BranchOutput output_;
  Matrix input_;   // [T, D], the residual stream
  Matrix gate_u_;  // [T, 2P]: gate and u; backward turns it into its gradient
};

}  // namespace moeloom
