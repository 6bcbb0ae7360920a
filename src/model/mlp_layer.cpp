#include "moeloom/model/mlp_layer.hpp"

namespace moeloom {
namespace {

std::string prefix(Index layer) {
  return "model.layers." + std::to_string(layer) + ".mlp.";
}

}  // namespace

MlpLayer::MlpLayer(const ParameterStore& store, Index layer)
    : gate_up_(Linear::of(store, prefix(layer) + "gate_up_proj.weight")),
      down_(Linear::of(store, prefix(layer) + "down_proj.weight")) {}

void MlpLayer::forward(const KernelTable& kernels, ConstMatrixView hidden_states, MatrixView output,
                       MlpWorkspace& workspace) {
  saved_gate_up_.reshape_uninitialised(hidden_states.rows, gate_up_.out());
  workspace.activated.reshape_uninitialised(hidden_states.rows, down_.weight.cols);
  gate_up_.forward(hidden_states, saved_gate_up_);
  kernels.swiglu.forward({}, saved_gate_up_, {}, workspace.activated);
  down_.forward(workspace.activated, output, Write::kAdd);
}

void MlpLayer::backward(const KernelTable& kernels, ConstMatrixView hidden_states, ConstMatrixView d_output,
                        MatrixView d_hidden_states, MlpWorkspace& workspace) {
  workspace.d_activated.reshape_uninitialised(d_output.rows, down_.weight.cols);
  workspace.activated.reshape_uninitialised(d_output.rows, down_.weight.cols);
  matmul_input_grad(d_output, down_.weight, workspace.d_activated);
  Matrix& d_gate_up = saved_gate_up_;
  kernels.swiglu.backward({}, saved_gate_up_, {}, workspace.d_activated, d_gate_up, {}, workspace.activated);
  if (down_.grad.rows > 0) matmul_weight_grad(d_output, workspace.activated, down_.grad);
  gate_up_.backward(d_gate_up, hidden_states, d_hidden_states);
}

}  // namespace moeloom
