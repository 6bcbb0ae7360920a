// The dense half of a decoder layer that has no experts, and a shared expert: down(act(gate x) * up x).
#pragma once

#include "model/parts/layer_spec.hpp"
#include "model/parts/linear.hpp"
#include "moeloom/kernels/registry.hpp"

namespace moeloom {

struct MlpWorkspace {
  RowMemory activated;  // [T, F], of what the down product multiplies
  Matrix d_activated;   // [T, F]
  Matrix gate_up;       // [T, 2F], where backward makes it again

  /// Without gate_up.
  static double bytes_of(const MlpSpec& spec, Index tokens) {
    return rows_bytes(tokens, {spec.width, spec.width});
  }
};

class MlpLayer {
 public:
  MlpLayer(const MlpSpec& spec, const ParameterStore& store);

  /// hidden_states [T, D] -> added to output [T, D]. recompute, here and in backward: backward makes again
  /// what it needs, and nothing is kept.
  void forward(const KernelTable& kernels, ConstMatrixView hidden_states, MatrixView output,
               MlpWorkspace& workspace, bool recompute = false);
  /// d_output [T, D] -> d_hidden_states [T, D], replaced.
  void backward(const KernelTable& kernels, ConstMatrixView hidden_states, ConstMatrixView d_output,
                MatrixView d_hidden_states, MlpWorkspace& workspace, bool recompute = false);
  /// Of what it keeps from forward to backward, or backward makes again.
  static double bytes_of(const MlpSpec& spec, Index tokens) { return rows_bytes(tokens, {2 * spec.width}); }

 private:
  void project(const KernelTable& kernels, ConstMatrixView hidden_states, RowKeys keys);
  /// Of both products, where an adapter of either needs them: backward asks for the second one's input
  /// gradient before it has made that input again.
  std::vector<std::uint64_t> keys_of(ConstMatrixView hidden_states) const;

  Linear gate_up_;
  Linear down_;
  GatedActivation activation_;
  Matrix saved_gate_up_;  // [T, 2F]; backward turns it into its gradient
};

}  // namespace moeloom
