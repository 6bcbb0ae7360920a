#include "model/attention/attention_heads.hpp"

#include "moeloom/base/errors.hpp"

#include "attention/heads_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

class ProjectedHeadsOf : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(ProjectedHeadsOf, AreThoseOfTheDefinition) {
  expect_heads_of_the_definition<ProjectedHeads>(AttentionFixture(GetParam()));
}

TEST_P(ProjectedHeadsOf, HaveTheGradientsOfTheDefinition) {
  AttentionFixture f(GetParam());
  expect_gradients_of_the_definition<ProjectedHeads>(f);
}

INSTANTIATE_TEST_SUITE_P(Every, ProjectedHeadsOf, ::testing::ValuesIn(cases_of_heads(false)),
                         [](const auto& info) { return info.param.name; });

// Without norms q and k are turned where they were projected; with them the projection stays for backward.
TEST(ProjectedHeads, ShareOneProjectionUnlessTheyAreNormed) {
  for (const AttentionCase& c : cases_of_heads(false)) {
    const AttentionFixture f(c);
    ProjectedHeads source(c.spec, f.store);
    source.forward(norm_and_rope_kernels(true), f.context(), f.input);
    const AttentionHeads heads = source.heads();
    const bool beside = heads.query.row(0) + c.spec.query_width() + c.spec.gate_rows() == heads.key.row(0);
    EXPECT_EQ(beside, c.spec.qk_norm == QkNorm::kNone) << c.name;
    EXPECT_EQ(!heads.query.contiguous(), beside) << c.name;
  }
}

TEST(ProjectedHeads, RefuseKeysAsValuesThatAreGoneWhenTheyAreNeeded) {
  for (const AttentionCase& c : cases_of_heads(false)) {
    if (!c.spec.keys_are_values) continue;
    AttentionFixture f(c);
    EXPECT_NO_THROW(ProjectedHeads(f.c.spec, f.store));
    f.c.spec.qk_norm_after_rope = true;
    EXPECT_THROW(ProjectedHeads(f.c.spec, f.store), ShapeError);
  }
}

TEST(ProjectedHeads, RefuseAProjectionOfOtherRows) {
  AttentionFixture f(cases_of_heads(false).front());
  f.c.spec.kv_heads = 4;
  EXPECT_THROW(ProjectedHeads(f.c.spec, f.store), ShapeError);
}

}  // namespace
}  // namespace moeloom
