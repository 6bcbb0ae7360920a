#include "moeloom/plan/cost/rebalance_cost.hpp"

#include "moeloom/plan/rates/built_in_rates.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

ModelConfig model() {
  ModelConfig config;
  config.hidden_size = 1024;
  config.moe_intermediate_size = 256;
  config.num_experts = 16;
  config.num_experts_per_tok = 2;
  return config;
}

TEST(RebalanceCost, IsTheFormulas) {
  MachineRates machine = built_in_rates();
  machine.network_bytes_per_second = 125e6;
  Job job{.batch = {.sequences = 4, .length = 1024}, .layout = {.mesh = {.ep = 4}}};
  const RebalanceRates rates = rebalance_rates(model(), job, machine);
  // 512 rows an expert: 50 GFLOP/s. 18 x 1024 x 256 operations, 4100 bytes a row, 3 MiB of weights.
  EXPECT_EQ(rates.row_products, 94372);
  EXPECT_EQ(rates.between_nodes.row, 32800);
  EXPECT_EQ(rates.between_nodes.weights, 25165824);
  EXPECT_EQ(rates.on_node.row, 1025);
  EXPECT_EQ(rates.sums, 1);
  job.batch.exact = 1;
  EXPECT_EQ(rebalance_rates(model(), job, machine).sums, 2) << "eight bytes a number";
  job.batch.exact = 0;

  job.exchange.wire = WireDType::kBf16;
  EXPECT_EQ(rebalance_rates(model(), job, machine).between_nodes.row, 16416);
  job.exchange.wire = WireDType::kFp32;
  job.layout.ranks_per_node = 2;
  job.layout.processors_per_node = 1;
  const RebalanceRates shared = rebalance_rates(model(), job, machine);
  EXPECT_EQ(shared.between_nodes.row, 2 * rates.between_nodes.row) << "two ranks share a link";
  EXPECT_EQ(shared.row_products, 2 * rates.row_products) << "and a processor";
}

TEST(RebalanceCost, TakesTheNodesRateWhereThereIsNoNetwork) {
  MachineRates machine = built_in_rates();
  machine.network_bytes_per_second = 0;
  const RebalanceRates rates = rebalance_rates(
      model(), {.batch = {.sequences = 2, .length = 8}, .layout = {.mesh = {.ep = 2}}}, machine);
  EXPECT_EQ(rates.between_nodes.row, rates.on_node.row);
  EXPECT_GT(rates.on_node.weights, 0);
}

}  // namespace
}  // namespace moeloom
