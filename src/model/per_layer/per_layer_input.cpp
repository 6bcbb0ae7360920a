#include "model/per_layer/per_layer_input.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {

PerLayerInput::PerLayerInput(const PerLayerInputSpec& spec, const ParameterStore& store)
    : gate_(Linear::of(store, spec.prefix + "per_layer_input_gate.weight")),
      projection_(Linear::of(store, spec.prefix + "per_layer_projection.weight")),
      activation_{.act = spec.act},
      output_(Norm::of(store, spec.norm)) {
  require(gate_.out() == spec.width && projection_.in() == spec.width,
          spec.prefix + "per_layer_input_gate and per_layer_projection must have the layer's part as width");
}

std::vector<std::uint64_t> PerLayerInput::keys() const {
  return drops_inputs(gate_.adapter) ? gate_.keys_of(input_) : projection_.keys_of(input_);
}

void PerLayerInput::forward(const KernelTable& kernels, ConstMatrixView u, MatrixView hidden,
                            PerLayerInputWorkspace& workspace) {
  const Index tokens = hidden.rows, width = gate_.out();
  input_.reshape_uninitialised(tokens, hidden.cols);
  copy(hidden, input_);
  const std::vector<std::uint64_t> keys = this->keys();
  workspace.gate.reshape_uninitialised(tokens, width);
  gate_.forward(kernels.dense, input_, workspace.gate, Write::kReplace, keys);
  gate_u_.reshape_uninitialised(tokens, 2 * width);
  copy(workspace.gate, gate_u_.view().cols_from(0, width));
  copy(u, gate_u_.view().cols_from(width, width));
  const Rows activated = workspace.activated.reshape_uninitialised(kernels.dense.element, tokens, width);
  kernels.swiglu.forward(activation_, gate_u_, {}, activated);
  projection_.forward(kernels.dense, activated, output_.input(tokens, hidden.cols), Write::kReplace, keys);
  output_.forward(kernels.rmsnorm, hidden);
}

void PerLayerInput::backward(const KernelTable& kernels, MatrixView d_hidden, MatrixView d_u,
                             PerLayerInputWorkspace& workspace) {
  const Index tokens = d_hidden.rows, width = gate_.out();
  const std::vector<std::uint64_t> keys = this->keys();
  Matrix &d_output = workspace.d_output, &d_input = workspace.d_input, &d_gate = workspace.gate;
  d_output.reshape_uninitialised(tokens, d_hidden.cols);
  output_.backward(kernels.rmsnorm, d_hidden, d_output);
  workspace.d_activated.reshape_uninitialised(tokens, width);
  projection_.backward_input(kernels.dense, d_output, workspace.d_activated, Write::kReplace, keys);
  const Rows activated = workspace.activated.reshape_uninitialised(kernels.dense.element, tokens, width);
  kernels.swiglu.backward(activation_, gate_u_, {}, workspace.d_activated, {gate_u_, {}, activated});
  projection_.backward_weight(kernels.dense, d_output, activated, keys);
  copy(gate_u_.view().cols_from(width, width), d_u);
  d_gate.reshape_uninitialised(tokens, width);
  copy(gate_u_.view().cols_from(0, width), d_gate);
  d_input.reshape_uninitialised(tokens, d_hidden.cols);
  gate_.backward(kernels.dense, d_gate, input_, d_input, Write::kReplace, keys);
  add(d_input, d_hidden);
}

double PerLayerInput::bytes_of(const PerLayerInputSpec& spec, Index tokens) {
  return rows_bytes(tokens, {spec.hidden_size, 2 * spec.width}) +
         BranchOutput::bytes_of(spec.norm, 1, tokens, spec.hidden_size);
}

}  // namespace moeloom
