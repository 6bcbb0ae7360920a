#include "summary/rebalance_report.hpp"

#include "support/count_of.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::count_of;

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
  const std::string html = rebalance_section({rebalanced_step(5), off, rebalanced_step(7)});
  EXPECT_NE(html.find("<td>1</td><td>1.5</td><td>1.3</td><td>8</td><td>6</td><td>3</td>"), std::string::npos)
      << html;
  EXPECT_NE(html.find("<td>in all</td><td>1.75</td><td>1.25</td><td>8</td><td>6</td><td>3</td>"),
            std::string::npos)
      << html;
  EXPECT_EQ(count_of(html, "<tr"), 3u) << "none of the dense layer";
  EXPECT_NE(html.find("replicas in 2 layers of micro-batches, 4 were even"), std::string::npos) << html;
}

TEST(RebalanceReport, IsLeftOutWithoutRebalancing) {
  EXPECT_EQ(rebalance_section({}), "");
  EXPECT_EQ(rebalance_section({StepMetrics()}), "");
}

}  // namespace
}  // namespace moeloom
