// The shared expert: an MLP that every token visits on its own rank, beside the experts it is sent to.
//
//   forward    Z = x W_gate_up^T [T, 2S], A = g * act(Z_gate) * Z_up [T, S], output += A W_down^T
//
// With biases Z and output += have theirs, g times the second's.
//
// g = 1, or sigmoid(x gate^T) a token (Qwen2-MoE). Like a routing weight it scales a row before the down
// projection, so its gradient needs no output of the MLP. Nothing travels, so the bits are the same at every
// ep.
#pragma once

#include "moe/experts/experts.hpp"

#include <vector>

namespace moeloom {

/// Views of the masters and gradients. A gradient without rows belongs to a frozen weight and is not
/// computed.
struct SharedExpertWeights {
  MatrixView gate_up;    // [2S, D], gate first; like down of weights that are stored as bf16 the shape alone
  MatrixView down;       // [D, S]
  MatrixView gate = {};  // [1, D]; without rows: g = 1
  MatrixView d_gate_up;
  MatrixView d_down;
  MatrixView d_gate = {};
  GatedActivation activation = {};
  ExactSums* sums = nullptr;  // that the gradients are leaves of
  ExpertBiases biases = {};   // of one expert
  ExpertAdapters adapters = {};
  ConstRows gate_up_numbers = gate_up, down_numbers = down;  // of either kind
};

/// Buffers that no layer keeps; one set serves every layer.
struct SharedExpertWorkspace {
  RowMemory activated;        // A [T, S], of what the down product multiplies
  Matrix d_activated;         // dA [T, S]
  std::vector<float> d_gate;  // [T]: of g, then of its logit
  std::vector<float> ones;    // [T], what biases are multiplied with

  static double bytes_of(Index tokens, Index width) { return rows_bytes(tokens, {width, width, 1}); }
};

/// What backward needs of forward.
struct SharedExpertActivations {
  Matrix gate_up;           // Z [T, 2S]; backward turns it into dZ
  std::vector<float> gate;  // g [T]; empty if not gated

  static double bytes_of(Index tokens, Index width, bool gated) {
    return rows_bytes(tokens, {2 * width, gated ? 1 : 0});
  }
};

class SharedExpert {
 public:
  /// Throws ShapeError for weights or gradients that do not fit each other.
  explicit SharedExpert(const SharedExpertWeights& weights);

  /// hidden_states [T, D] -> added to output [T, D].
  void forward(const KernelTable& kernels, ConstMatrixView hidden_states, MatrixView output,
               SharedExpertWorkspace& workspace);
  /// Of a forward what backward needs alone.
  void keep(const KernelTable& kernels, ConstMatrixView hidden_states);
  /// d_output [T, D] -> added to d_hidden_states [T, D] and to the gradients. Once a forward.
  void backward(const KernelTable& kernels, ConstMatrixView hidden_states, ConstMatrixView d_output,
                MatrixView d_hidden_states, SharedExpertWorkspace& workspace);

  /// Of the last forward; who lends it buffers puts them here.
  SharedExpertActivations& activations() { return saved_; }

 private:
  /// [T] of x, by which adapters drop inputs; empty where none does.
  std::vector<std::uint64_t> keys_of(ConstMatrixView hidden_states) const;
  /// As keep().
  void project(const KernelTable& kernels, ConstMatrixView hidden_states, RowKeys keys);
  /// After backward has made dZ.
  void add_bias_grads(ConstMatrixView d_output, SharedExpertWorkspace& workspace);
  bool gated() const { return weights_.gate.rows > 0; }

  SharedExpertWeights weights_;
  SharedExpertActivations saved_;
};

}  // namespace moeloom
