#include "step/run_routing.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::pair<Index, Index> recorded(std::optional<StepRange> asked, StepRange run) {
  const StepRange range = recorded_range(asked, run);
  return {range.from, range.to};
}

TEST(RunRouting, RecordsTheLastTenStepsOrThoseOfTheRunThatAreAskedFor) {
  using Pair = std::pair<Index, Index>;
  EXPECT_EQ(recorded(std::nullopt, {0, 300}), (Pair{290, 300}));
  EXPECT_EQ(recorded(std::nullopt, {0, 4}), (Pair{0, 4}));
  EXPECT_EQ(recorded(std::nullopt, {295, 300}), (Pair{295, 300}))
      << "a run that goes on in the middle of them";
  EXPECT_EQ(recorded(StepRange{5, 8}, {0, 300}), (Pair{5, 8}));
  EXPECT_EQ(recorded(StepRange{5, 8}, {7, 300}), (Pair{7, 8}));
  const auto [from, to] = recorded(StepRange{5, 8}, {8, 300});
  EXPECT_GE(from, to) << "none is left";
}

TEST(RunRouting, ForcesAsManyExpertsAsALayersRouterChooses) {
  ModelConfig config;
  config.num_hidden_layers = 3;
  config.num_experts = 8;
  config.num_experts_per_tok = 4;
  config.layer_top_k = {4, 2, 4};
  RunRouting routing;
  routing.force(Workload::kBalanced,
                {.config = config, .batch = {.sequences = 2, .length = 4}, .steps = {0, 1}});
  Batch batch{.sequences = 2, .sequence_length = 4};
  routing.hooks().before({}, batch);
  ASSERT_EQ(batch.given_topk_idx.size(), 3u);
  for (const auto& [layer, top_k] : {std::pair{0, 4}, {1, 2}, {2, 4}})
    EXPECT_EQ(std::ssize(batch.given_topk_idx[at(layer)]), 8 * top_k) << layer;
}

}  // namespace
}  // namespace moeloom
