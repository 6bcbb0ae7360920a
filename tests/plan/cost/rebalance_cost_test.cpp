#include "moeloom/plan/cost/rebalance_cost.hpp"

#include "moeloom/model/freeze.hpp"
#include "moeloom/model/hf/adapter.hpp"
#include "moeloom/model/hf/parameter_specs.hpp"
#include "moeloom/plan/rates/built_in_rates.hpp"

#include "support/small_model.hpp"
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
  const RebalanceRates rates = rebalance_rates(model(), {}, job, machine);
  // 512 rows an expert: 50 GFLOP/s. 18 x 1024 x 256 operations, 4100 bytes a row, 3 MiB of weights.
  EXPECT_EQ(rates.row_products, 94372);
  EXPECT_EQ(rates.between_nodes.row, 32800);
  EXPECT_EQ(rates.between_nodes.weights, 25165824);
  EXPECT_EQ(rates.between_nodes.gradients, 25165824);
  EXPECT_EQ(rates.on_node.row, 1025);

  job.exchange.wire = WireDType::kBf16;
  EXPECT_EQ(rebalance_rates(model(), {}, job, machine).between_nodes.row, 16416);
  job.exchange.wire = WireDType::kFp32;
  job.layout.ranks_per_node = 2;
  job.layout.processors_per_node = 1;
  const RebalanceRates shared = rebalance_rates(model(), {}, job, machine);
  EXPECT_EQ(shared.between_nodes.row, 2 * rates.between_nodes.row) << "two ranks share a link";
  EXPECT_EQ(shared.row_products, 2 * rates.row_products) << "and a processor";
}

TEST(RebalanceCost, TakesTheNodesRateWhereThereIsNoNetwork) {
  MachineRates machine = built_in_rates();
  machine.network_bytes_per_second = 0;
  const RebalanceRates rates = rebalance_rates(
      model(), {}, {.batch = {.sequences = 2, .length = 8}, .layout = {.mesh = {.ep = 2}}}, machine);
  EXPECT_EQ(rates.between_nodes.row, rates.on_node.row);
  EXPECT_GT(rates.on_node.weights, 0);
}

/// Nanoseconds where a byte takes one, on the node and between nodes.
RebalanceRates rates_of_bytes(const std::vector<ParameterSpec>& specs, const Job& job) {
  MachineRates machine = built_in_rates();
  machine.network_bytes_per_second = machine.node_bytes_per_second = 1e9;
  return rebalance_rates(testing::tiny_config(), specs, job, machine);
}

struct StoredCase {
  const char* name;
  std::vector<ParameterSpec> specs;
  std::int64_t weights, gradients;  // bytes of an expert
};

/// Of the same numbers an expert, whatever is kept of them, and of what is trained beside them.
std::vector<StoredCase> stored_cases() {
  ModelConfig config = testing::tiny_config();
  const std::int64_t numbers = 3 * config.hidden_size * config.moe_intermediate_size;
  const auto plain = parameter_specs(config, {0, 2});
  std::set<std::string> experts;
  for (const ParameterSpec& spec : plain)
    if (spec.placement == Placement::kExperts) experts.insert(spec.name);
  std::vector<StoredCase> cases = {
      {"fp32", plain, 4 * numbers, 4 * numbers},
      {"bf16", with_storage(plain, Storage::kBf16), 2 * numbers, 4 * numbers},
      {"split", with_storage(plain, Storage::kSplit), 2 * numbers, 4 * numbers},
      {"bf16 gradients", with_gradients(plain, Storage::kBf16), 4 * numbers, 4 * numbers},
      {"frozen", with_frozen(plain, experts), 4 * numbers, 0}};
  config.adapter = resolve_adapter(config, {.rank = 2, .targets = {"experts"}, .base_stored = Storage::kF16});
  const auto adapted = parameter_specs(config, {0, 2});
  // A and B of gate, up and down.
  const std::int64_t factors = 3 * 2 * (config.hidden_size + config.moe_intermediate_size);
  cases.push_back({"adapters", adapted, 2 * numbers + 4 * factors, 4 * factors});
  return cases;
}

TEST(RebalanceCost, ChargesWeightsAsTheyAreStoredAndGradientsOfWhatIsTrained) {
  for (const StoredCase& c : stored_cases()) {
    SCOPED_TRACE(c.name);
    const Job job{.batch = {.sequences = 2, .length = 8}, .layout = {.mesh = {.ep = 2}}};
    const RebalanceRates rates = rates_of_bytes(c.specs, job);
    for (const CrossingNanoseconds& way : {rates.on_node, rates.between_nodes}) {
      EXPECT_NEAR(way.weights, c.weights, 63 * 6) << "each array begins at a cache line";
      EXPECT_EQ(way.gradients, c.gradients);
    }
  }
}

TEST(RebalanceCost, ChargesNothingForWhatIsReadAndWrittenInTheNodesMemory) {
  const StoredCase adapters = stored_cases().back();
  Job job{.batch = {.sequences = 2, .length = 8},
          .exchange = {.dispatcher = DispatcherKind::kHierarchical},
          .layout = {.mesh = {.ep = 2}}};
  const RebalanceRates rates = rates_of_bytes(adapters.specs, job);
  EXPECT_EQ(rates.on_node.weights + rates.on_node.gradients, 0);
  EXPECT_GT(rates.on_node.row, 0);
  EXPECT_EQ(rates.between_nodes.gradients, adapters.gradients);
  EXPECT_EQ(rates_of_bytes({}, job).on_node.weights, 0);
  job.keeping.offload = "/disk";
  const RebalanceRates offloaded = rates_of_bytes(adapters.specs, job);
  EXPECT_NEAR(offloaded.on_node.weights, adapters.weights - adapters.gradients, 63 * 2)
      << "sent from the disk";
  EXPECT_EQ(offloaded.on_node.gradients, 0);
}

}  // namespace
}  // namespace moeloom
