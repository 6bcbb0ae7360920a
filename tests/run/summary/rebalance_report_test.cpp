#include "summary/rebalance_report.hpp"

#include <limits>

#include "support/sections.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::has_row;

StepMetrics rebalanced_step(double saved_ms) {
  StepMetrics step;
  step.rebalance = {.made = 1,
                    .even = 2,
                    .replicas = 3,
                    .weight_bytes = 1024,
                    .load_before = 1.75,
                    .load_after = 1.25,
                    .uneven_ms = 8,
                    .saved_ms = saved_ms};
  step.layers = {{},
                 {.max_over_mean = 2,
                  .rank_load_before = 1.5,
                  .rank_load_after = 1.3,
                  .uneven_ms = 8,
                  .saved_ms = saved_ms,
                  .replicas = 3}};
  return step;
}

TEST(RebalanceReport, HasARowOfMeansForEachSparseLayerAndOneInAll) {
  StepMetrics off;
  off.layers = {{}, {.max_over_mean = 3}};
  const Section section = rebalance_section({rebalanced_step(5), off, rebalanced_step(7)});
  EXPECT_EQ(section.table.rows.size(), 2u) << "none of the dense layer";
  EXPECT_TRUE(has_row(section.table, {"1", "1.5", "1.3", "8", "6", "3"}));
  EXPECT_TRUE(has_row(section.table, {"in all", "1.75", "1.25", "8", "6", "3"}));
  EXPECT_NE(section.note.find("replicas in 2 layers of micro-batches, 4 were even"), std::string::npos)
      << section.note;
}

TEST(RebalanceReport, IsLeftOutWithoutRebalancing) {
  EXPECT_TRUE(rebalance_section({}).is_empty());
  EXPECT_TRUE(rebalance_section({StepMetrics()}).is_empty());
}

TEST(RebalanceReport, SumsOfWhateverIntegersAFileHasAreInRange) {
  StepMetrics step;
  const Index most = std::numeric_limits<Index>::max();
  step.rebalance = RebalanceMetrics{.made = most, .weight_bytes = most, .gradient_bytes = most};
  const std::string note = rebalance_section({step, step}).note;
  EXPECT_NE(note.find("replicas in 1.84e+19 layers"), std::string::npos) << note;
  EXPECT_NE(note.find("16,777,216 TiB of weights and gradients a step"), std::string::npos) << note;
}

}  // namespace
}  // namespace moeloom
