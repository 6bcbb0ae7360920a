// Queries, keys and values against their definition: what the tests of projected and of latent heads share.
#pragma once

#include "model/attention/attention_heads.hpp"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention_layer_testing.hpp"

namespace moeloom::testing {

/// Each head's last `count` columns before its others: latent heads are [rope, nope] in the library.
inline Doubles last_first(const Doubles& heads, Index size, Index count) {
  Doubles turned;
  for (auto head = heads.begin(); head != heads.end(); head += size) {
    turned.insert(turned.end(), head + size - count, head + size);
    turned.insert(turned.end(), head, head + size - count);
  }
  return turned;
}

/// Query, key and value [T, width] of normed [T, D], columns as the library has them.
inline AttentionReference::Heads heads_by_definition(const AttentionReference& r, const Doubles& normed) {
  AttentionReference::Heads all;
  for (Index t = 0; t < kTokens; ++t) {
    const Doubles x = AttentionReference::part(normed, t * kWidth, kWidth);
    AttentionReference::Heads heads = r.spec.latent ? r.latent(x, t % kLength) : r.projected(x, t % kLength);
    if (r.spec.latent) {
      heads.query = last_first(heads.query, r.spec.head_dim, r.spec.latent->rope_dim);
      heads.key = last_first(heads.key, r.spec.head_dim, r.spec.latent->rope_dim);
    }
    for (const auto& [part, whole] :
         {std::pair{&heads.query, &all.query}, {&heads.key, &all.key}, {&heads.value, &all.value}})
      whole->insert(whole->end(), part->begin(), part->end());
  }
  return all;
}

inline void expect_near(ConstMatrixView got, const Doubles& expected, const char* name) {
  ASSERT_EQ(at(got.rows * got.cols), expected.size()) << name;
  for (Index t = 0; t < got.rows; ++t)
    for (Index j = 0; j < got.cols; ++j) {
      const double wanted = expected[at(t * got.cols + j)];
      // Sums of some dozens of fp32 products, of numbers up to ten.
      ASSERT_NEAR(got(t, j), wanted, 1e-5 * (1 + std::abs(wanted))) << name << " " << t << ", " << j;
    }
}

template <typename Source>
void expect_heads_of_the_definition(const AttentionFixture& f) {
  const AttentionReference::Heads expected = heads_by_definition(f.reference(), doubles_of(f.input));
  for (const bool fused : {false, true}) {
    Source source(f.c.spec, f.store);
    source.forward(norm_and_rope_kernels(fused), f.context(), f.input);
    const AttentionHeads heads = source.heads();
    expect_near(heads.query, expected.query, "query");
    expect_near(heads.key, expected.key, "key");
    expect_near(heads.value, expected.value, "value");
  }
}

/// Those of <query, d_query> + <key, d_key> + <value, d_value> in the input and in every parameter.
template <typename Source>
void expect_gradients_of_the_definition(AttentionFixture& f) {
  const AttentionSpec& spec = f.c.spec;
  const Matrix d_query = random_matrix(kTokens, spec.query_width(), 5);
  const Matrix d_key = random_matrix(kTokens, spec.key_width(), 6);
  const Matrix d_value = random_matrix(kTokens, spec.value_width(), 7);
  Source source(spec, f.store);
  HeadsWorkspace workspace;
  source.forward(norm_and_rope_kernels(true), f.context(), f.input);
  const AttentionHeads gradients = source.gradients(kTokens, workspace);
  copy(d_query, gradients.query);
  copy(d_key, gradients.key);
  copy(d_value, gradients.value);
  if constexpr (requires { source.gate_gradient(workspace); }) fill(source.gate_gradient(workspace), 0.0f);
  Matrix d_normed(kTokens, kWidth);
  fill(d_normed, 7.0f);  // replaced
  source.backward(norm_and_rope_kernels(true), f.context(), f.input, workspace, d_normed);

  AttentionReference reference = f.reference();
  Doubles input = doubles_of(f.input);
  const auto objective = [&] {
    const AttentionReference::Heads heads = heads_by_definition(reference, input);
    double sum = 0;
    for (const auto& [part, gradient] :
         {std::pair{&heads.query, &d_query}, {&heads.key, &d_key}, {&heads.value, &d_value}})
      sum = std::inner_product(part->begin(), part->end(), gradient->view().data, sum);
    return sum;
  };
  expect_differences("input", input, d_normed.view().data, objective);
  for (const Parameter& p : f.store.parameters())
    expect_differences(p.spec.name, reference.values.at(p.spec.name), p.grad.data, objective);
}

/// Cases with or without latents.
inline std::vector<AttentionCase> cases_of_heads(bool latent) {
  std::vector<AttentionCase> cases;
  for (const AttentionCase& c : attention_cases())
    if (c.spec.latent.has_value() == latent) cases.push_back(c);
  return cases;
}

}  // namespace moeloom::testing
