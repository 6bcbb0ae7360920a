#include "model/attention/latent_heads.hpp"

#include "moeloom/base/errors.hpp"

#include "attention/heads_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

class LatentHeadsOf : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(LatentHeadsOf, AreThoseOfTheDefinition) {
  expect_heads_of_the_definition<LatentHeads>(AttentionFixture(GetParam()));
}

TEST_P(LatentHeadsOf, HaveTheGradientsOfTheDefinition) {
  AttentionFixture f(GetParam());
  expect_gradients_of_the_definition<LatentHeads>(f);
}

INSTANTIATE_TEST_SUITE_P(Every, LatentHeadsOf, ::testing::ValuesIn(cases_of_heads(true)),
                         [](const auto& info) { return info.param.name; });

TEST(LatentHeads, ShareTheTurnedPartOfTheKey) {
  const AttentionFixture f(cases_of_heads(true).front());
  LatentHeads source(f.c.spec, f.store);
  source.forward(norm_and_rope_kernels(true), f.context(), f.input);
  const MatrixView key = source.heads().key;
  for (Index t = 0; t < kTokens; ++t)
    for (Index head = 1; head < f.c.spec.heads; ++head)
      for (Index j = 0; j < f.c.spec.latent->rope_dim; ++j)
        ASSERT_EQ(key(t, head * f.c.spec.head_dim + j), key(t, j)) << t << ", head " << head;
}

TEST(LatentHeads, RefuseARopeTableOfAnotherSize) {
  const AttentionFixture f(cases_of_heads(true).front());
  const RopeTable whole_head = make_rope_table(64, {.rotary_dim = f.c.spec.head_dim});
  LatentHeads source(f.c.spec, f.store);
  const MixerContext context{kSequences, kLength, f.positions, std::span(&whole_head, 1)};
  EXPECT_THROW(source.forward(norm_and_rope_kernels(true), context, f.input), ShapeError);
}

TEST(LatentHeads, RefuseWeightsThatDoNotHaveTheirShape) {
  AttentionFixture f(cases_of_heads(true).front());
  f.c.spec.kv_heads = 1;
  EXPECT_THROW(LatentHeads(f.c.spec, f.store), ShapeError);
  f.c.spec.kv_heads = f.c.spec.heads;
  f.c.spec.value_dim += 1;
  EXPECT_THROW(LatentHeads(f.c.spec, f.store), ShapeError);
}

}  // namespace
}  // namespace moeloom
