// The gated delta rule, its gated norm, and the whole gated delta net of kernels alone, against the
// reference.
#include "moeloom/kernels/causal_conv.hpp"
#include "moeloom/kernels/delta_gates.hpp"
#include "moeloom/kernels/delta_rule.hpp"
#include "moeloom/kernels/elementwise/rmsnorm.hpp"
#include "moeloom/tensor/gemm.hpp"

#include "golden_block_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

TEST(GoldenDeltaRule, OutputStateAndGradients) {
  for_each_golden_block({"torch_chunk_gated_delta_rule"}, [](const GoldenBlock& block) {
    const auto shape = block.shape("input.value");  // [B, S, heads, dv]
    const Index heads = shape[2], dv = shape[3], dk = block.shape("input.key")[3];
    const auto offsets = even_segments(shape[0], shape[1]);
    const DeltaRuleShape rule{heads, heads, dk, dv, offsets};
    const auto input = [&](const char* name, Index size) {
      return golden_matrix(block, std::string("input.") + name, heads * size);
    };
    const Matrix q = input("query", dk), k = input("key", dk), v = input("value", dv), g = input("g", 1),
                 beta = input("beta", 1), dy = golden_matrix(block, "upstream_grad.output", heads * dv);
    const DeltaRuleInputs inputs{q, k, v, g, beta};
    Matrix y(v.rows(), v.cols()), delta(v.rows(), v.cols()), last(shape[0] * heads, dk * dv);
    delta_rule_forward(rule, inputs, {}, y, delta, last);
    expect_golden(block, y, "output");
    if (block.tensors.has("final_state")) expect_golden(block, last, "final_state");

    Matrix dq(q.rows(), q.cols()), d_k(q.rows(), q.cols()), d_v(v.rows(), v.cols()), dg(g.rows(), heads),
        d_beta(g.rows(), heads);
    delta_rule_backward(rule, {inputs, delta, {}}, dy, {}, {dq, d_k, d_v, dg, d_beta, {}});
    expect_golden(block, dq, "grad.input.query");
    expect_golden(block, d_k, "grad.input.key");
    expect_golden(block, d_v, "grad.input.value");
    expect_golden(block, dg, "grad.input.g");
    expect_golden(block, d_beta, "grad.input.beta");
  });
}

TEST(GoldenGatedRmsNorm, OutputAndGradients) {
  for_each_golden_block({"Qwen3NextRMSNormGated"}, [](const GoldenBlock& block) {
    for (const RmsNormKernel& kernel : {reference_rmsnorm(), fused_rmsnorm()}) {
      const Matrix x = golden_matrix(block, "input.hidden_states"), gate = golden_matrix(block, "input.gate"),
                   dy = golden_matrix(block, "upstream_grad.output");
      const std::vector<float> weight = block.tensors.floats("weight.weight");
      Matrix y(x.rows(), x.cols()), dx(x.rows(), x.cols()), d_gate(x.rows(), x.cols()), d_weight(1, x.cols());
      std::vector<float> inv_rms(at(x.rows()));
      kernel.gated_forward(x, gate, weight, {}, y, inv_rms);
      kernel.gated_backward({x, weight, {}, inv_rms}, gate, dy, dx, d_gate, d_weight.view().flat());
      expect_golden(block, y, "output");
      expect_golden(block, dx, "grad.input.hidden_states");
      expect_golden(block, d_gate, "grad.input.gate");
      expect_golden(block, d_weight, "grad.weight.weight");
    }
  });
}

/// Rows of the reference's fused projections, which go by key head, in the order that the kernels read: of
/// each key head `sizes` rows of its parts, to all rows of the first part, then all of the second, ...
std::vector<Index> by_part(Index key_heads, const std::vector<Index>& sizes) {
  Index block = 0;
  for (const Index size : sizes) block += size;
  std::vector<Index> order;
  Index first = 0;
  for (const Index size : sizes) {
    for (Index head = 0; head < key_heads; ++head)
      for (Index i = 0; i < size; ++i) order.push_back(head * block + first + i);
    first += size;
  }
  return order;
}

Matrix taken(ConstMatrixView source, const std::vector<Index>& order) {
  Matrix m(source.rows, source.cols);
  for (Index i = 0; i < source.rows; ++i) copy(source.rows_from(order[at(i)], 1), m.view().rows_from(i, 1));
  return m;
}
Matrix put_back(ConstMatrixView source, const std::vector<Index>& order) {
  Matrix m(source.rows, source.cols);
  for (Index i = 0; i < source.rows; ++i) copy(source.rows_from(i, 1), m.view().rows_from(order[at(i)], 1));
  return m;
}

/// A gated delta net of a golden block: projections, convolution, gates, rule, gated norm, projection.
struct DeltaNet {
  explicit DeltaNet(const GoldenBlock& b)
      : block(b),
        key_heads(b.config.integer("linear_num_key_heads")),
        value_heads(b.config.integer("linear_num_value_heads")),
        keys(key_heads * b.config.integer("linear_key_head_dim")),
        values(value_heads * b.config.integer("linear_value_head_dim")),
        group(value_heads / key_heads),
        qkvz_order(
            by_part(key_heads, {keys / key_heads, keys / key_heads, values / key_heads, values / key_heads})),
        ba_order(by_part(key_heads, {group, group})),
        in_proj(taken(golden_matrix(b, "weight.in_proj_qkvz.weight"), qkvz_order)),
        gate_proj(taken(golden_matrix(b, "weight.in_proj_ba.weight"), ba_order)),
        conv(golden_matrix(b, "weight.conv1d.weight")),
        out_proj(golden_matrix(b, "weight.out_proj.weight")),
        a_log(b.tensors.floats("weight.A_log")),
        dt_bias(b.tensors.floats("weight.dt_bias")),
        norm(b.tensors.floats("weight.norm.weight")),
        offsets(even_segments(b.shape("input.hidden_states")[0], b.shape("input.hidden_states")[1])) {}

  CausalConv convolution() const { return {conv, {}, ConvActivation::kSilu, offsets}; }
  DeltaRuleShape rule() const {
    return {key_heads, value_heads, keys / key_heads, values / value_heads, offsets};
  }
  RmsNormSettings settings() const {
    return {.eps = static_cast<float>(block.config.number("rms_norm_eps"))};
  }

  const GoldenBlock& block;
  Index key_heads, value_heads, keys, values, group;
  std::vector<Index> qkvz_order, ba_order;
  Matrix in_proj, gate_proj, conv, out_proj;
  std::vector<float> a_log, dt_bias, norm;
  std::vector<Index> offsets;
};

/// Masked positions enter as zeros, and get no gradient.
void mask(const GoldenBlock& block, MatrixView hidden) {
  if (!block.tensors.has("input.attention_mask")) return;
  const std::vector<std::int64_t> real = block.tensors.integers("input.attention_mask");
  for (Index t = 0; t < hidden.rows; ++t)
    if (real[at(t)] == 0) fill(hidden.rows_from(t, 1), 0.0f);
}

void expect_golden_delta_net(const GoldenBlock& block) {
  const DeltaNet net(block);
  const Index keys = net.keys, values = net.values, mixed_cols = 2 * keys + values, heads = net.value_heads;
  Matrix x = golden_matrix(block, "input.hidden_states");
  mask(block, x);
  const Index tokens = x.rows();
  Matrix qkvz(tokens, mixed_cols + values), ba(tokens, 2 * heads), mixed(tokens, mixed_cols);
  Matrix beta(tokens, heads), log_decay(tokens, heads), rule_output(tokens, values), delta(tokens, values);
  Matrix normed(tokens, values), y(tokens, x.cols());
  std::vector<float> inv_rms(at(tokens * heads));
  matmul(x, net.in_proj, qkvz);
  matmul(x, net.gate_proj, ba);
  const ConstMatrixView before_conv = qkvz.view().cols_from(0, mixed_cols),
                        z = qkvz.view().cols_from(mixed_cols, values);
  const ConstMatrixView b = ba.view().cols_from(0, heads), a = ba.view().cols_from(heads, heads);
  const DeltaGates gates{net.a_log, net.dt_bias};
  causal_conv_forward(net.convolution(), before_conv, {}, mixed, {});
  delta_gates_forward(gates, b, a, beta, log_decay);
  const ConstMatrixView m = mixed;
  const DeltaRuleInputs inputs{m.cols_from(0, keys), m.cols_from(keys, keys), m.cols_from(2 * keys, values),
                               log_decay, beta};
  delta_rule_forward(net.rule(), inputs, {}, rule_output, delta, {});
  fused_rmsnorm().gated_forward(rule_output, z, net.norm, net.settings(), normed, inv_rms);
  matmul(normed, net.out_proj, y);
  expect_golden(block, y, "output");

  const Matrix dy = golden_matrix(block, "upstream_grad.output");
  Matrix d_qkvz(tokens, qkvz.cols()), d_ba(tokens, ba.cols()), d_mixed(tokens, mixed_cols),
      d_x(tokens, x.cols());
  Matrix d_normed(tokens, values), d_out(net.out_proj.rows(), values), d_in(net.in_proj.rows(), x.cols()),
      d_gate(ba.cols(), x.cols()), d_conv(net.conv.rows(), net.conv.cols());
  Matrix d_norm(1, static_cast<Index>(net.norm.size())), d_a_log(1, heads), d_dt_bias(1, heads);
  matmul_input_grad(dy, net.out_proj, d_normed);
  matmul_weight_grad(dy, normed, d_out);
  const MatrixView d_z = d_qkvz.view().cols_from(mixed_cols, values), dm = d_mixed;
  fused_rmsnorm().gated_backward({rule_output, net.norm, net.settings(), inv_rms}, z, d_normed, d_normed, d_z,
                                 d_norm.view().flat());
  const MatrixView d_b = d_ba.view().cols_from(0, heads), d_a = d_ba.view().cols_from(heads, heads);
  delta_rule_backward(
      net.rule(), {inputs, delta, {}}, d_normed, {},
      {dm.cols_from(0, keys), dm.cols_from(keys, keys), dm.cols_from(2 * keys, values), d_a, d_b, {}});
  delta_gates_backward(gates, b, a, d_b, d_a, {d_b, d_a, d_a_log.view().flat(), d_dt_bias.view().flat()});
  causal_conv_backward(net.convolution(), before_conv, d_mixed, d_qkvz.view().cols_from(0, mixed_cols),
                       {d_conv, {}});
  matmul_weight_grad(d_qkvz, x, d_in);
  matmul_weight_grad(d_ba, x, d_gate);
  matmul_input_grad(d_qkvz, net.in_proj, d_x);
  matmul_input_grad(d_ba, net.gate_proj, d_x, Write::kAdd);
  mask(block, d_x);
  expect_golden(block, d_x, "grad.input.hidden_states");
  expect_golden(block, put_back(d_in, net.qkvz_order), "grad.weight.in_proj_qkvz.weight");
  expect_golden(block, put_back(d_gate, net.ba_order), "grad.weight.in_proj_ba.weight");
  expect_golden(block, d_conv, "grad.weight.conv1d.weight");
  expect_golden(block, d_out, "grad.weight.out_proj.weight");
  expect_golden(block, d_norm, "grad.weight.norm.weight");
  expect_golden(block, d_a_log, "grad.weight.A_log");
  expect_golden(block, d_dt_bias, "grad.weight.dt_bias");
}

TEST(GoldenDeltaNet, OutputAndEveryGradient) {
  for_each_golden_block({"Qwen3NextGatedDeltaNet"}, expect_golden_delta_net);
}

}  // namespace
}  // namespace moeloom
