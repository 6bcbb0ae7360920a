#include "plan/rates/machine_rates.hpp"

#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(MachineRates, DenseProductsAreReadBetweenTheMeasuredRows) {
  MachineRates rates;
  rates.dense_flops = {10, 20, 40, 60};  // at 16, 64, 256, 1024 rows
  EXPECT_EQ(dense_flops_at(rates, 1), 10);
  EXPECT_EQ(dense_flops_at(rates, 16), 10);
  EXPECT_DOUBLE_EQ(dense_flops_at(rates, 32), 15);
  EXPECT_DOUBLE_EQ(dense_flops_at(rates, 512), 50);
  EXPECT_EQ(dense_flops_at(rates, 1 << 20), 60);
}

TEST(MachineRates, EveryRankMeasuresTheSamePositiveRates) {
  const Communicator world = Communicator::world();
  const ModelConfig config = testing::tiny_config();
  const MachineRates rates = measure_machine_rates(rate_case(config, 16), {}, world, 0.01);
  for (const double rate : {rates.dense_flops[0], rates.dense_flops[3], rates.attention_flops,
                            rates.head_flops, rates.router_tokens, rates.plan_slots, rates.elementwise_bytes,
                            rates.copy_bytes, rates.updated_elements, rates.expert_slowdown}) {
    EXPECT_GT(rate, 0);
    EXPECT_EQ(world.all_max(rate), rate) << "the slowest rank's rate holds everywhere";
    EXPECT_EQ(-world.all_max(-rate), rate);
  }
  EXPECT_GE(rates.expert_slowdown, 1);
  if (world.size() == 1) {
    EXPECT_EQ(rates.expert_slowdown, 1) << "there is nobody beside it";
  }
  EXPECT_EQ(rates.ranks, world.size());
  EXPECT_EQ(rates.node_ranks, world.split_by_node().size());
  EXPECT_EQ(rates.measured_node(), world.size() > 1);
  EXPECT_FALSE(rates.measured_network()) << "these ranks share one node";
  EXPECT_FALSE(rates.network_tcp);
}

TEST(MachineRates, ACaseIsTheSizesThatRatesDependOn) {
  const RateCase sizes = rate_case(testing::tiny_config(), 16);
  EXPECT_EQ(sizes.hidden, 24);
  EXPECT_EQ(sizes.heads, 4);
  EXPECT_EQ(sizes.value_dim, 8);
  EXPECT_EQ(sizes.experts, 4);
  EXPECT_EQ(sizes.inter, testing::tiny_config().moe_intermediate_size);
  EXPECT_EQ(sizes.sequence_length, 16);
}

TEST(DueShare, IsOfWholeProcessorsThatRanksShare) {
  EXPECT_EQ(due_share(2, 4), 0.5) << "which oversubscription counts";
  EXPECT_EQ(due_share(2.7, 4), 0.5);
  EXPECT_EQ(due_share(0.4, 1), 1) << "a fraction is the quota's alone";
  EXPECT_EQ(due_share(8, 2), 1);
}

}  // namespace
}  // namespace moeloom
