#include "plan/cost/rebalance_cost.hpp"

#include "model/freeze.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "plan/cost/expert_load.hpp"
#include "plan/rates/built_in_rates.hpp"

#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::tiny_config;

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
  job.batch.exact = 1;
  EXPECT_EQ(rebalance_rates(model(), {}, job, machine).between_nodes.gradients, 50331648)
      << "eight bytes a number";
  job.batch.exact = 0;

  job.exchange.wire = WireDType::kBf16;
  EXPECT_EQ(rebalance_rates(model(), {}, job, machine).between_nodes.row, 16416);
  job.exchange.wire = WireDType::kFp32;
  job.layout.ranks_per_node = 2;
  job.layout.processors_per_node = 1;
  const RebalanceRates shared = rebalance_rates(model(), {}, job, machine);
  EXPECT_EQ(shared.between_nodes.row, 2 * rates.between_nodes.row) << "two ranks share a link";
  EXPECT_EQ(shared.row_products, 2 * rates.row_products) << "and a processor";
}

TEST(RebalanceCost, CountsOnWhateverSlowANetwork) {
  MachineRates machine = built_in_rates();
  machine.network_bytes_per_second = 1e-9;
  const Job job{.batch = {.sequences = 4, .length = 1024}, .layout = {.mesh = {.ep = 4}}};
  const RebalanceRates rates = rebalance_rates(model(), {}, job, machine);
  EXPECT_GT(rates.between_nodes.row, rates.on_node.row);
  EXPECT_GT(rates.between_nodes.weights, rates.between_nodes.row);
  EXPECT_GT(rates.between_nodes.gradients, rates.between_nodes.row);
  Job uneven = job;
  uneven.exchange.expert_rows = {rows_with_fullest(16, 8)};
  const RebalanceGain gain = rebalance_gain(model(), uneven, rates);
  EXPECT_GT(gain.uneven_seconds, 0);
  EXPECT_GE(gain.saved_seconds, 0);
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
  return rebalance_rates(tiny_config(), specs, job, machine);
}

struct StoredCase {
  const char* name;
  std::vector<ParameterSpec> specs;
  std::int64_t weights, gradients;  // bytes of an expert
};

/// Of the same numbers an expert, whatever is kept of them, and of what is trained beside them.
std::vector<StoredCase> stored_cases() {
  ModelConfig config = tiny_config();
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

// Two of three layers have experts, four of them, of which a token takes two.
Job job_with(std::vector<std::vector<double>> expert_rows) {
  return {.batch = {.sequences = 8, .length = 64, .micro_batches = 2},
          .exchange = {.expert_rows = std::move(expert_rows)},
          .layout = {.mesh = {.ep = 2}, .ranks_per_node = 2}};
}

constexpr RebalanceRates kInPlace{.row_products = 3000, .on_node = {.row = 10}, .between_nodes = {}};

TEST(RebalanceCost, GainOfReplicasIsOfAllSparseLayersAndMicroBatches) {
  // 128 tokens a rank and micro-batch: of all 512 rows 256 on the first expert, and 85 on each other one. The
  // first rank has 342 of 512, of which its half comes from the other one.
  const Job job = job_with({rows_with_fullest(4, 2)});
  ASSERT_EQ(job.tokens(), 128);
  const RebalanceGain gain = rebalance_gain(tiny_config(), job, kInPlace);
  const double uneven = 2 * 2 * 1e-9 * (3000 * (342 - 256) + 4 * 10 * (171 - 128));
  EXPECT_NEAR(gain.uneven_seconds, uneven, 0.02 * uneven) << "counts are rounded";
  // One atom of the first expert, 128 rows, would make the other rank the fuller one by 2 * 42.
  EXPECT_EQ(gain.saved_seconds > 0, paying_load(tiny_config(), job, kInPlace) <= 2.0);
  EXPECT_EQ(rebalance_gain(tiny_config(), job_with({}), kInPlace).uneven_seconds, 0);
}

TEST(RebalanceCost, GainOfReplicasIsTheMeanOfLists) {
  const std::vector<double> even(4, 1), uneven = rows_with_fullest(4, 2);
  const RebalanceGain one = rebalance_gain(tiny_config(), job_with({uneven}), kInPlace);
  const RebalanceGain half = rebalance_gain(tiny_config(), job_with({even, uneven}), kInPlace);
  EXPECT_NEAR(half.uneven_seconds, one.uneven_seconds / 2, 1e-12);
  const std::vector<std::vector<double>> many(1000, uneven);
  EXPECT_NEAR(rebalance_gain(tiny_config(), job_with(many), kInPlace).uneven_seconds, one.uneven_seconds,
              1e-12);
}

TEST(RebalanceCost, PayingLoadGrowsWithWhatWeightsCostUntilNothingPays) {
  ModelConfig config = tiny_config();
  config.num_experts = 16;
  const Job job = job_with({});
  RebalanceRates rates = kInPlace;
  double before = 1;
  for (const std::int64_t weights : {0, 250'000}) {
    rates.on_node.weights = rates.on_node.gradients = weights;
    const std::optional<double> load = paying_load(config, job, rates);
    ASSERT_TRUE(load) << weights;
    EXPECT_GT(*load, before) << weights;
    EXPECT_LE(*load, 8.0);
    before = *load;
    Job at_that = job_with({rows_with_fullest(16, *load)});
    EXPECT_GT(rebalance_gain(config, at_that, rates).saved_seconds, 0);
    at_that = job_with({rows_with_fullest(16, 0.97 * *load)});
    EXPECT_EQ(rebalance_gain(config, at_that, rates).saved_seconds, 0);
  }
  rates.on_node.weights = rates.on_node.gradients = 100'000'000;
  EXPECT_FALSE(paying_load(config, job, rates));
}

}  // namespace
}  // namespace moeloom
