#include "model/feed_forward/mlp_layer.hpp"

#include "base/lent.hpp"
#include "moeloom/base/errors.hpp"

namespace moeloom {

MlpLayer::MlpLayer(const MlpSpec& spec, const ParameterStore& store)
    : gate_up_(Linear::of_module(store, spec.prefix + "gate_up_proj", spec.bias)),
      down_(Linear::of_module(store, spec.prefix + "down_proj", spec.bias)),
      activation_(spec.activation) {
  require(gate_up_.out() == 2 * spec.width, spec.prefix + "gate_up_proj must have 2 * width rows");
  require(down_.in() == spec.width, spec.prefix + "down_proj must read width columns");
}

std::vector<std::uint64_t> MlpLayer::keys_of(ConstMatrixView hidden_states) const {
  return drops_inputs(gate_up_.adapter) ? gate_up_.keys_of(hidden_states) : down_.keys_of(hidden_states);
}

void MlpLayer::project(const KernelTable& kernels, ConstMatrixView hidden_states, RowKeys keys) {
  saved_gate_up_.reshape_uninitialised(hidden_states.rows, gate_up_.out());
  gate_up_.forward(kernels.dense, hidden_states, saved_gate_up_, Write::kReplace, keys);
}

void MlpLayer::forward(const KernelTable& kernels, ConstMatrixView hidden_states, MatrixView output,
                       MlpWorkspace& workspace, bool recompute) {
  const Lent lent(saved_gate_up_, workspace.gate_up, recompute);
  const Rows activated =
      workspace.activated.reshape_uninitialised(kernels.dense.element, hidden_states.rows, down_.in());
  const std::vector<std::uint64_t> keys = keys_of(hidden_states);
  project(kernels, hidden_states, keys);
  kernels.swiglu.forward(activation_, saved_gate_up_, {}, activated);
  down_.forward(kernels.dense, activated, output, Write::kAdd, keys);
}

void MlpLayer::backward(const KernelTable& kernels, ConstMatrixView hidden_states, ConstMatrixView d_output,
                        MatrixView d_hidden_states, MlpWorkspace& workspace, bool recompute) {
  const Lent lent(saved_gate_up_, workspace.gate_up, recompute);
  const std::vector<std::uint64_t> keys = keys_of(hidden_states);
  if (recompute) project(kernels, hidden_states, keys);
  workspace.d_activated.reshape_uninitialised(d_output.rows, down_.in());
  const Rows activated =
      workspace.activated.reshape_uninitialised(kernels.dense.element, d_output.rows, down_.in());
  down_.backward_input(kernels.dense, d_output, workspace.d_activated, Write::kReplace, keys);
  Matrix& d_gate_up = saved_gate_up_;
  kernels.swiglu.backward(activation_, saved_gate_up_, {}, workspace.d_activated, {d_gate_up, {}, activated});
  down_.backward_weight(kernels.dense, d_output, activated, keys);
  gate_up_.backward(kernels.dense, d_gate_up, hidden_states, d_hidden_states, Write::kReplace, keys);
}

}  // namespace moeloom
