#include "moe/experts/shared_expert.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>

#include "experts/expert_biases.hpp"

namespace moeloom {
namespace {

bool is(ConstMatrixView m, Index rows, Index cols) {
  return m.rows == rows && m.cols == cols;
}

bool is_gradient_of(ConstMatrixView gradient, ConstMatrixView weight) {
  return gradient.rows == 0 || is(gradient, weight.rows, weight.cols);
}

void check(const SharedExpertWeights& w) {
  const Index hidden = w.down.rows;
  require(is(w.gate_up, 2 * w.down.cols, hidden),
          "a shared expert's gate_up must be [2 S, D] where down is [D, S]");
  require(w.gate.rows == 0 || is(w.gate, 1, hidden), "a shared expert's gate must be [1, D], or have no row");
  require(is_gradient_of(w.d_gate_up, w.gate_up) && is_gradient_of(w.d_down, w.down) &&
              is_gradient_of(w.d_gate, w.gate),
          "a shared expert's gradients must have the shapes of its weights, or no row");
  check_biases({.experts = 1,
                .gate_up = w.gate_up,
                .down = w.down,
                .d_gate_up = {},
                .d_down = {},
                .biases = w.biases});
}

MatrixView as_column(std::vector<float>& values) {
  return {values.data(), static_cast<Index>(values.size()), 1};
}

void add_weight_grad(const DenseKernel& kernel, ConstMatrixView dy, ConstRows x, MatrixView gradient,
                     ExactSums* sums) {
  if (gradient.rows == 0) return;
  for_each_leaf(sums, dy.rows, [&](Index first, Index rows) {
    kernel.weight_grad(dy.rows_from(first, rows), x.rows_from(first, rows), gradient, Write::kAdd);
    if (sums != nullptr) sums->take(gradient);
  });
}

/// All rows as one group.
class AllRows {
 public:
  explicit AllRows(Index rows) : count_(rows), groups_{{&count_, 1}, 1} {}
  AllRows(const AllRows&) = delete;
  AllRows& operator=(const AllRows&) = delete;
  const GroupedRows& groups() const { return groups_; }

 private:
  Index count_;
  GroupedRows groups_;
};

MatrixView as_column_of(MatrixView bias) {
  return {bias.data, bias.size(), 1};
}

}  // namespace

SharedExpert::SharedExpert(const SharedExpertWeights& weights) : weights_(weights) {
  check(weights);
}

std::vector<std::uint64_t> SharedExpert::keys_of(ConstMatrixView hidden_states) const {
  return weights_.adapters.drops() ? row_keys(hidden_states) : std::vector<std::uint64_t>();
}

void SharedExpert::keep(const KernelTable& kernels, ConstMatrixView hidden_states) {
  project(kernels, hidden_states, keys_of(hidden_states));
}

void SharedExpert::project(const KernelTable& kernels, ConstMatrixView hidden_states, RowKeys keys) {
  Matrix& gate_up = saved_.gate_up;
  std::vector<float>& gate = saved_.gate;
  gate_up.reshape_uninitialised(hidden_states.rows, weights_.gate_up.rows);
  gate.resize(gated() ? at(hidden_states.rows) : 0);
  if (gated())
    for_each_leaf(weights_.sums, hidden_states.rows, [&](Index first, Index rows) {
      matmul(hidden_states.rows_from(first, rows), weights_.gate, as_column(gate).rows_from(first, rows));
    });
  for (float& g : gate) g = 1 / (1 + std::exp(-g));
  const AllRows all(hidden_states.rows);
  kernels.dense.forward(hidden_states, weights_.gate_up_numbers, gate_up, Write::kReplace);
  add_low_rank(kernels.dense, weights_.adapters.gate_up, hidden_states, gate_up, keys);
  BiasedRows{weights_.biases, false, all.groups(), gate}.finish_gate_up(gate_up);
}

void SharedExpert::forward(const KernelTable& kernels, ConstMatrixView hidden_states, MatrixView output,
                           SharedExpertWorkspace& workspace) {
  const std::vector<std::uint64_t> keys = keys_of(hidden_states);
  project(kernels, hidden_states, keys);
  const Rows activated = workspace.activated.reshape_uninitialised(kernels.dense.element, hidden_states.rows,
                                                                   weights_.down.cols);
  const AllRows all(hidden_states.rows);
  kernels.swiglu.forward(weights_.activation, saved_.gate_up, saved_.gate, activated);
  kernels.dense.forward(activated, weights_.down_numbers, output, Write::kAdd);
  add_low_rank(kernels.dense, weights_.adapters.down, activated, output, keys);
  BiasedRows{weights_.biases, false, all.groups(), saved_.gate}.finish_output(output);
}

void SharedExpert::backward(const KernelTable& kernels, ConstMatrixView hidden_states,
                            ConstMatrixView d_output, MatrixView d_hidden_states,
                            SharedExpertWorkspace& workspace) {
  require(d_output.rows == saved_.gate_up.rows(), "a shared expert's backward needs the rows of its forward");
  const std::vector<std::uint64_t> keys = keys_of(hidden_states);
  const Rows activated =
      workspace.activated.reshape_uninitialised(kernels.dense.element, d_output.rows, weights_.down.cols);
  workspace.d_activated.reshape_uninitialised(d_output.rows, weights_.down.cols);
  workspace.d_gate.resize(saved_.gate.size());
  kernels.dense.input_grad(d_output, weights_.down_numbers, workspace.d_activated, Write::kReplace);
  add_low_rank_input_grad(kernels.dense, weights_.adapters.down, d_output, workspace.d_activated, keys);
  Matrix& d_gate_up = saved_.gate_up;
  kernels.swiglu.backward(weights_.activation, saved_.gate_up, saved_.gate, workspace.d_activated,
                          {d_gate_up, workspace.d_gate, activated});
  add_weight_grad(kernels.dense, d_output, activated, weights_.d_down, weights_.sums);
  add_weight_grad(kernels.dense, d_gate_up, hidden_states, weights_.d_gate_up, weights_.sums);
  if (weights_.biases.any()) add_bias_grads(d_output, workspace);
  add_low_rank_weight_grads(kernels.dense, weights_.adapters.down, d_output, activated, weights_.sums, keys);
  add_low_rank_weight_grads(kernels.dense, weights_.adapters.gate_up, d_gate_up, hidden_states, weights_.sums,
                            keys);
  kernels.dense.input_grad(d_gate_up, weights_.gate_up_numbers, d_hidden_states, Write::kAdd);
  add_low_rank_input_grad(kernels.dense, weights_.adapters.gate_up, d_gate_up, d_hidden_states, keys);
  if (!gated()) return;
  const AllRows all(d_output.rows);
  BiasedRows{weights_.biases, false, all.groups(), saved_.gate}.finish_backward(d_output, {}, {},
                                                                                workspace.d_gate);
  for (std::size_t t = 0; t < saved_.gate.size(); ++t)
    workspace.d_gate[t] *= saved_.gate[t] * (1 - saved_.gate[t]);
  add_weight_grad(native_dense(), as_column(workspace.d_gate), hidden_states, weights_.d_gate, weights_.sums);
  for_each_leaf(weights_.sums, d_hidden_states.rows, [&](Index first, Index rows) {
    matmul_input_grad(as_column(workspace.d_gate).rows_from(first, rows), weights_.gate,
                      d_hidden_states.rows_from(first, rows), Write::kAdd);
  });
}

void SharedExpert::add_bias_grads(ConstMatrixView d_output, SharedExpertWorkspace& workspace) {
  const ExpertBiases& biases = weights_.biases;
  workspace.ones.assign(at(d_output.rows), 1.0f);
  std::vector<float>& factors = gated() ? saved_.gate : workspace.ones;
  add_weight_grad(native_dense(), d_output, as_column(factors), as_column_of(biases.d_down), weights_.sums);
  add_weight_grad(native_dense(), saved_.gate_up, as_column(workspace.ones), as_column_of(biases.d_gate_up),
                  weights_.sums);
}

}  // namespace moeloom
