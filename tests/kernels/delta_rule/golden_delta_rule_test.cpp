// The gated delta rule against the reference.
#include "kernels/delta_rule.hpp"

#include "support/golden_blocks.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

TEST(GoldenDeltaRule, OutputStateAndGradients) {
  for_each_golden_block("GoldenDeltaRule", [](const GoldenBlock& block) {
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

}  // namespace
}  // namespace moeloom
