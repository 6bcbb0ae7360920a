// Gated activations in the MLPs of public model code.
#include "moeloom/kernels/elementwise/swiglu.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <algorithm>
#include <string>

#include "support/golden_blocks.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

Matrix matrix_of(const GoldenBlock& block, const std::string& name) {
  const auto shape = block.shape(name);
  const Index cols = shape.back();
  Matrix m(block.tensors.info(name).elements() / cols, cols);
  block.tensors.read(name, 0, m.view().flat());
  return m;
}

/// The reference classes' activations; the sparsity of a Gemma3n block is in its name ("..._sparsity_0p95").
GatedActivation golden_activation(const GoldenBlock& block) {
  if (!block.meta.text("hf").starts_with("Gemma3")) return {};
  const std::string key = "sparsity_";
  const auto found = block.name.find(key);
  if (found == std::string::npos) return {Activation::kGeluTanh};
  std::string number = block.name.substr(found + key.size());
  std::ranges::replace(number, 'p', '.');
  return {Activation::kGeluTanh, std::stof(number)};
}

/// gate_up_proj as the file has it, or gate_proj's numbers and then up_proj's; kind: weight or bias. Empty if
/// the block has neither.
std::vector<float> gate_up_of(const GoldenBlock& block, const std::string& prefix, const std::string& kind) {
  const SafetensorsFile& file = block.tensors;
  if (file.has(prefix + "gate_up_proj." + kind)) return file.floats(prefix + "gate_up_proj." + kind);
  if (!file.has(prefix + "gate_proj." + kind)) return {};
  auto numbers = file.floats(prefix + "gate_proj." + kind);
  const auto up = file.floats(prefix + "up_proj." + kind);
  numbers.insert(numbers.end(), up.begin(), up.end());
  return numbers;
}

void add_to_rows(const std::vector<float>& bias, MatrixView y) {
  for (Index i = 0; i < y.rows; ++i)
    for (std::size_t j = 0; j < bias.size(); ++j) y.row(i)[j] += bias[j];
}

std::vector<float> column_sums(ConstMatrixView y) {
  std::vector<float> sums(static_cast<std::size_t>(y.cols));
  for (Index i = 0; i < y.rows; ++i)
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += y.row(i)[j];
  return sums;
}

void expect_golden_mlp(const GoldenBlock& block, const SwigluKernel& kernel, const std::string& name) {
  const auto check = [&](std::span<const float> got, const std::vector<float>& golden, const char* what,
                         double tolerance) {
    EXPECT_LE(golden_error(got, golden, kBlockFloor), tolerance) << block.name << ' ' << name << ' ' << what;
  };
  const SafetensorsFile& file = block.tensors;
  const GatedActivation activation = golden_activation(block);
  const Matrix x = matrix_of(block, "input.hidden_states"), dy = matrix_of(block, "upstream_grad.output");
  const Matrix down = matrix_of(block, "weight.down_proj.weight");
  const Index width = down.cols();
  const auto weights = gate_up_of(block, "weight.", "weight"), bias = gate_up_of(block, "weight.", "bias");
  const ConstMatrixView gate_up_weight(weights.data(), 2 * width, x.cols());

  Matrix gate_up(x.rows(), 2 * width), activated(x.rows(), width), y(x.rows(), down.rows());
  matmul(x, gate_up_weight, gate_up);
  add_to_rows(bias, gate_up);
  kernel.forward(activation, gate_up, {}, activated);
  matmul(activated, down, y);
  if (!bias.empty()) add_to_rows(file.floats("weight.down_proj.bias"), y);
  check(y.view().flat(), file.floats("output"), "output", 1e-5);

  Matrix d_activated(x.rows(), width), dx(x.rows(), x.cols());
  matmul_input_grad(dy, down, d_activated);
  kernel.backward(activation, gate_up, {}, d_activated, {gate_up, {}, d_activated});
  Matrix d_gate_up(2 * width, x.cols()), d_down(down.rows(), width);
  matmul_weight_grad(dy, d_activated, d_down);
  matmul_weight_grad(gate_up, x, d_gate_up);
  matmul_input_grad(gate_up, gate_up_weight, dx);
  check(d_down.view().flat(), file.floats("grad.weight.down_proj.weight"), "d_down", 2e-5);
  check(d_gate_up.view().flat(), gate_up_of(block, "grad.weight.", "weight"), "d_gate_up", 2e-5);
  check(dx.view().flat(), file.floats("grad.input.hidden_states"), "dx", 2e-5);
  if (!bias.empty())
    check(column_sums(gate_up), gate_up_of(block, "grad.weight.", "bias"), "d_gate_up bias", 2e-5);
}

TEST(GoldenMlp, IsGivenByEveryKernelWithItsGradients) {
  for_each_golden_block("GoldenMlp", [](const GoldenBlock& block) {
    for (const auto& [name, kernel] : {std::pair{"reference", reference_swiglu()}, {"fused", fused_swiglu()}})
      expect_golden_mlp(block, kernel, name);
  });
}

}  // namespace
}  // namespace moeloom
