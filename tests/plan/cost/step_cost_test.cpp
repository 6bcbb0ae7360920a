#include "plan/cost/step_cost.hpp"

#include "model/hf/parameters/parameter_specs.hpp"
#include "train/training_run.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

Job case_of(Index dp, Index ep) {
  return {.batch = {.sequences = 2 * dp * ep, .length = 24},
          .layout = {.mesh = shape_of(dp, ep), .ranks_per_node = dp * ep, .processors_per_node = dp * ep}};
}

MachineRates even_rates() {
  return {.dense_flops = {1e9, 1e9, 1e9, 1e9},
          .attention_flops = 1e9,
          .head_flops = 1e9,
          .router_tokens = 1e6,
          .plan_slots = 1e6,
          .elementwise_bytes = 1e9,
          .copy_bytes = 1e9,
          .updated_elements = 1e9};
}

TEST(StepCost, ThreadsBeyondTheProcessorsShareThem) {
  Job job = case_of(2, 4);
  EXPECT_EQ(oversubscription(job), 1);
  job.layout.processors_per_node = 2;
  EXPECT_EQ(oversubscription(job), 4);
  job.layout.threads = 2;
  EXPECT_EQ(oversubscription(job), 8);
  job.layout.processors_per_node = 64;
  EXPECT_EQ(oversubscription(job), 1);
}

TEST(StepCost, RanksOfAnEpRowAreNeighboursWhereEpVariesFastest) {
  Job job = case_of(4, 8);
  job.layout.ranks_per_node = 4;
  EXPECT_EQ(job.layout.ep_on_node(), 4);
  job.layout.ranks_per_node = 16;
  EXPECT_EQ(job.layout.ep_on_node(), 8);
  job.layout.mesh.order = {"ep", "dp"};
  EXPECT_EQ(job.layout.ep_on_node(), 4) << "of 16 ranks a node each fourth is of one row";
}

TEST(StepCost, ARankHoldsTheRowsOfItsExperts) {
  const auto loads = [](const std::vector<double>& rows) { return rank_loads(rows, 2); };
  EXPECT_EQ(loads({3, 1, 1, 3}), (std::vector<double>{1, 1}));
  EXPECT_EQ(loads({1, 1, 0, 0}), (std::vector<double>{2, 0}));
  EXPECT_EQ(loads({0, 0, 0, 0}), (std::vector<double>{1, 1})) << "no rows at all";
  EXPECT_DOUBLE_EQ(loads({3, 1, 1, 1, 1})[0], 2 * 5 / 7.0) << "the first of 5 experts' 2 ranks holds 3";
  Job job = case_of(1, 2);
  EXPECT_EQ(fullest_rank_load(job), 1) << "even";
  job.exchange.expert_rows = {{3, 1}, {0, 1}, {1, 1}};  // of rank 0 1.5, 0, 1; of rank 1 0.5, 2, 1
  EXPECT_DOUBLE_EQ(fullest_rank_load(job), 3.5 / 3);
}

TEST(StepCost, TheFullestExpertLeavesTheRestToTheOthers) {
  EXPECT_EQ(rows_with_fullest(5, 2), (std::vector<double>{2, 0.75, 0.75, 0.75, 0.75}));
  EXPECT_EQ(rows_with_fullest(1, 1), (std::vector<double>{1}));
}

TEST(StepCost, AStepWaitsForTheBusiestProcessor) {
  const std::vector<double> rows = {4, 1, 2, 1};  // loads of four ranks 2, 0.5, 1, 0.5
  Job job = case_of(1, 4);
  EXPECT_DOUBLE_EQ(busiest_load(job, rows), 2);
  job.layout.ranks_per_node = 2;
  EXPECT_DOUBLE_EQ(busiest_load(job, rows), 2) << "a processor each on two nodes";
  job.layout.ranks_per_node = 4;
  job.layout.processors_per_node = 2;
  EXPECT_DOUBLE_EQ(busiest_load(job, rows), 1.5) << "ranks 0 and 2 share one";
  job.layout.processors_per_node = 1;
  EXPECT_DOUBLE_EQ(busiest_load(job, rows), 1) << "all share one, and no time is lost";
  job = case_of(2, 2);
  job.layout.processors_per_node = 2;
  EXPECT_DOUBLE_EQ(busiest_load(job, rows), 1.25) << "both rows' fullest ranks share a processor";
  job.layout.processors_per_node = 3;
  EXPECT_DOUBLE_EQ(busiest_load(job, {{1, 1, 1, 1}}), 1) << "even, though one processor has two ranks";
}

TEST(StepCost, ListsOfRowsCountByTheirMean) {
  Job job = case_of(1, 2);
  EXPECT_EQ(mean_busiest_load(job), 1);
  job.exchange.expert_rows = {{3, 1}, {1, 1}, {0, 1}};
  EXPECT_DOUBLE_EQ(mean_busiest_load(job), (1.5 + 1 + 2) / 3);
}

TEST(StepCost, TheOthersWaitInCombine) {
  EXPECT_DOUBLE_EQ(waiting_seconds(1.5, 1, 4, {.dispatch = 1, .combine = 3}), 0.5 * (4 + 2));
  EXPECT_DOUBLE_EQ(waiting_seconds(1.5, 2, 4, {.dispatch = 1, .combine = 3}), 0.5 * (4 + 1) - 1.5)
      << "of two ranks that share a link one has sent its rows";
  EXPECT_DOUBLE_EQ(waiting_seconds(1.5, 2, 2, {.dispatch = 1, .combine = 3}), 0.5 * (2 + 1) - 1)
      << "or those that were computed meanwhile";
  EXPECT_DOUBLE_EQ(waiting_seconds(1, 2, 4, {.dispatch = 1, .combine = 3}), 0) << "even";
  const ModelConfig config = tiny_config();
  Job job = case_of(1, 2);
  const auto specs = parameter_specs(config, {0, config.num_experts / 2});
  const MachineRates machine = even_rates();
  const PhaseSeconds even = step_seconds(config, specs, job, machine, 0.25);
  job.exchange.expert_rows = {{3, 1}, {1, 1}};  // of the two sparse layers, as if of two experts
  const PhaseSeconds uneven = step_seconds(config, specs, job, machine, 0.25);
  const ExchangeSeconds exchange = exchange_seconds_of_layer(config, job, link_rates(machine, job));
  EXPECT_NEAR(total(uneven) - total(even), 2 * waiting_seconds(1.25, 1, 0.25, exchange), 1e-12);
  EXPECT_EQ(uneven[static_cast<std::size_t>(Phase::kExperts)],
            even[static_cast<std::size_t>(Phase::kExperts)]);
}

TEST(StepCost, OfFeedForwardsAndTheHeadAreTheirProductsThreeTimes) {
  const ModelConfig config = tiny_config();  // D = 24, dense layer 1 of 40
  const LayerSpec sparse = config.layer(0), dense = config.layer(1);
  EXPECT_EQ(mlp_product_flops(sparse, 10), 0);
  EXPECT_EQ(mlp_product_flops(dense, 10), 6 * 10 * 3 * 24 * 40);
  EXPECT_EQ(head_flops(config, 10), 6 * 10 * 256 * 24);
  EXPECT_EQ(dense_elementwise_bytes(sparse, 10), 4 * 10 * 10 * 24);
  EXPECT_EQ(dense_elementwise_bytes(dense, 10), 4 * 10 * (10 * 24 + 9 * 40));
}

TEST(StepCost, AReductionMovesAllButARanksOwnShare) {
  Job job = case_of(4, 1);
  job.layout.ranks_per_node = 2;
  const ExchangeRates rates{.node_message_seconds = 1,
                            .node_bandwidth = 100,
                            .network_message_seconds = 10,
                            .network_bandwidth = 50,
                            .copy_bandwidth = 200};
  const auto of = [&](bool sums, bool once = false) {
    return reduction_seconds({1000, 4, 2, sums, once}, job, rates);
  };
  EXPECT_EQ(reduction_seconds({1000, 1, 1, true}, job, rates), 0);
  // 4 ranks, 2 a node, 1000 bytes to each: 1 in the node, 2 over the network that 2 ranks share.
  EXPECT_DOUBLE_EQ(of(false), 1 + 10 + 10 + 2 * 2000 / 50.0) << "messages are all under way at once";
  EXPECT_DOUBLE_EQ(of(true) - of(false), 8000 / 200.0);
  // 1000 bytes to one rank of the other node; 2 x 1000 to the mate.
  EXPECT_DOUBLE_EQ(of(false, true), 1 + 2000 / 100.0 + 10 + 2 * 1000 / 50.0);
  EXPECT_DOUBLE_EQ(of(true, true), 2 + 2000 / 100.0 + 10 + 2 * 1000 / 50.0 + 1.5 * 8000 / 200)
      << "a message for each node's sums, which are made twice";
}

TEST(StepCost, WhatIsEqualForANodesRanksCrossesOnceWhereNodesAreSubtrees) {
  const GroupExchange sum{1000, 12, 3, true}, gather{1000, 12, 3, false}, of_two{1000, 8, 2, true};
  EXPECT_TRUE(may_cross_once(gather));
  EXPECT_FALSE(may_cross_once(sum)) << "three ranks are no subtree";
  EXPECT_TRUE(may_cross_once(of_two));
  EXPECT_FALSE(may_cross_once({1000, 8, 1, true})) << "a rank a node";
  EXPECT_FALSE(may_cross_once({1000, 8, 8, true})) << "one node";
}

/// Of gradients and weights at the end of a step and, on nodes of one rank, under products.
TEST(StepCost, ReductionsOfAStepCrossOnceAtTheEndAndLengthenProductsBesideThem) {
  const ModelConfig config = tiny_config();
  const auto specs = parameter_specs(config, {0, config.num_experts});
  MachineRates machine = even_rates();
  machine.network_message_seconds = 0;
  machine.network_bytes_per_second = 1e6;
  const auto seconds = [&](const Job& job) { return step_seconds(config, specs, job, machine, 1e3); };
  const auto of = [](const PhaseSeconds& all, Phase phase) { return all[static_cast<std::size_t>(phase)]; };
  Job job = case_of(4, 1);
  job.layout.ranks_per_node = 2;
  const Trained trained = trained_elements(specs);
  const double once =
      2 * 4 * (trained.dense + trained.experts) / 4 / 1e6;  // not twice, over a link of two ranks
  EXPECT_NEAR(of(seconds(job), Phase::kOptimizer), once, 0.2 * once) << "copies and the update beside";
  job.layout.tcp = true;
  job.layout.ranks_per_node = 1;
  const PhaseSeconds end = seconds(job);
  job.exchange.overlap_reduce = job.exchange.overlap_gather = true;
  const PhaseSeconds beside = seconds(job);
  const double hidden = of(end, Phase::kReduce) - of(beside, Phase::kReduce) + of(end, Phase::kOptimizer) -
                        of(beside, Phase::kOptimizer);
  ASSERT_GT(hidden, 0);
  EXPECT_NEAR(total(end) - total(beside), hidden - tcp_seconds(1e6 * hidden), 1e-9);
  EXPECT_GT(of(beside, Phase::kExperts), of(end, Phase::kExperts));
}

/// In rounds of a node, then of nodes.
TEST(StepCost, SumsOfAFewWordsOverAllRanksCount) {
  const ModelConfig config = tiny_config();
  const auto specs = parameter_specs(config, {0, config.num_experts});
  Job job = case_of(8, 1);
  job.layout.ranks_per_node = 2;
  const auto seconds = [&](double in_node, double between) {
    MachineRates machine = even_rates();
    machine.network_bytes_per_second = 1e18;
    machine.node_message_seconds = in_node;
    machine.network_message_seconds = between;
    return step_seconds(config, specs, job, machine, 0.25);
  };
  const PhaseSeconds quick = seconds(1e-9, 0), slow = seconds(1, 100);
  const auto more = [&](Phase phase) {
    return slow[static_cast<std::size_t>(phase)] - quick[static_cast<std::size_t>(phase)];
  };
  EXPECT_NEAR(more(Phase::kReport), 1 + 2 * 100, 1e-6) << "two ranks a node, four nodes";
  EXPECT_NEAR(more(Phase::kLoss), 3 * (1 + 2 * 100), 1e-6) << "losses, targets, what routers chose";
}

TEST(StepCost, CountsTravelAtOnceAndInRoundsBetweenManyRanks) {
  const ModelConfig config = tiny_config();
  const MachineRates machine = even_rates();
  const ExchangeRates rates{.node_message_seconds = 1, .network_message_seconds = 100};
  const auto counts = [&](Index ep, Index ranks_per_node) {
    Job job = case_of(1, ep);
    job.layout.ranks_per_node = ranks_per_node;
    return plan_seconds_of_layer(config, job, machine, rates) -
           plan_seconds_of_layer(config, job, machine, {});
  };
  EXPECT_DOUBLE_EQ(counts(4, 4), 3) << "each is work of the node's processors";
  EXPECT_DOUBLE_EQ(counts(2, 1), 100);
  EXPECT_DOUBLE_EQ(counts(4, 2), 1 + 100);
  EXPECT_DOUBLE_EQ(counts(15, 1), 100);
  EXPECT_DOUBLE_EQ(counts(16, 1), 400);
  EXPECT_DOUBLE_EQ(counts(17, 1), 500);
  Job chunks = case_of(1, 4);
  chunks.layout.ranks_per_node = 1;
  chunks.exchange.chunks = 2;
  EXPECT_DOUBLE_EQ(plan_seconds_of_layer(config, chunks, machine, rates) -
                       plan_seconds_of_layer(config, chunks, machine, {}),
                   300)
      << "counts at once, and a gather in two rounds";
}

TEST(StepCost, ChunksLeaveTheFirstAndWhatIsLongerThanTheProducts) {
  EXPECT_DOUBLE_EQ(exposed_seconds(8, 100, 1, 1), 8) << "nothing to hide behind";
  EXPECT_DOUBLE_EQ(exposed_seconds(8, 100, 4, 0.25), 2);
  EXPECT_DOUBLE_EQ(exposed_seconds(8, 100, 4, 0.5), 4) << "half leaves with the first chunk";
  EXPECT_DOUBLE_EQ(exposed_seconds(8, 4, 4, 0.25), 5) << "products hide three quarters of themselves";
  EXPECT_DOUBLE_EQ(exposed_seconds(8, 0, 4, 0.25), 8);
}

TEST(StepCost, MoreThanAShareOfTokensLeavesWithHierarchicalsFirstChunk) {
  ExchangeCase e{.tokens = 1, .hidden = 1, .top_k = 2, .num_experts = 8, .ep = 4, .ep_on_node = 2};
  EXPECT_DOUBLE_EQ(share_of_first_chunk(DispatcherKind::kAlltoall, e, 2), 0.5);
  // On a node of 4 experts a token has one of 2 in the first chunk unless both choices are of the other 6:
  // 1 - 15/28; and it is there at all unless both are of the other node's 4: 1 - 6/28.
  EXPECT_DOUBLE_EQ(share_of_first_chunk(DispatcherKind::kHierarchical, e, 2), 13 / 22.0);
  EXPECT_DOUBLE_EQ(share_of_first_chunk(DispatcherKind::kHierarchical, e, 1), 1);
  EXPECT_DOUBLE_EQ(share_of_last_chunk(DispatcherKind::kHierarchical, e, 2), 0.5) << "a row a slot";
  e.combine = CombineMode::kFast;
  EXPECT_DOUBLE_EQ(share_of_last_chunk(DispatcherKind::kHierarchical, e, 2), 13 / 22.0);
}

TEST(StepCost, ChunksHideTheNetworkAndNotTheCopies) {
  const ModelConfig config = tiny_config();
  Job job = case_of(1, 2);
  job.layout.ranks_per_node = 1;
  const ExchangeRates rates{.network_message_seconds = 0, .network_bandwidth = 1, .copy_bandwidth = 1};
  const double row_bytes = 48.0 * 2 * 24 * 4;  // of all slots: half of them cross, each way and pass
  const auto sum = [](const ExchangeSeconds& e) { return e.dispatch + e.combine; };
  const double whole = sum(exchange_seconds_of_layer(config, job, rates));
  const double copies = whole - 4 * row_bytes / 2;
  EXPECT_DOUBLE_EQ(sum(overlapped_exchange(config, job, rates, 1e9)), whole) << "not in chunks";
  job.exchange.chunks = 4;
  EXPECT_DOUBLE_EQ(sum(overlapped_exchange(config, job, rates, 1e9)), copies + 4 * row_bytes / 2 / 4);
  EXPECT_DOUBLE_EQ(sum(overlapped_exchange(config, job, rates, 0)), whole) << "no products to hide behind";
  const double products =
      0.3 * row_bytes;  // forward's third hides three quarters of itself, as backward's do
  EXPECT_NEAR(sum(overlapped_exchange(config, job, rates, products)), whole - 0.75 * products, 1e-6);
  job.layout.ranks_per_node = 2;
  EXPECT_DOUBLE_EQ(sum(overlapped_exchange(config, job, {.node_bandwidth = 1, .copy_bandwidth = 1}, 1e9)),
                   whole)
      << "inside a node processors move rows";
}

TEST(StepCost, PhasesAreTheirTerms) {
  const ModelConfig config = tiny_config();
  const Job job = case_of(1, 1);
  const auto specs = parameter_specs(config, {0, config.num_experts});
  const PhaseSeconds seconds = step_seconds(config, specs, job, even_rates(), 0.25);
  const auto of = [&](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; };
  EXPECT_DOUBLE_EQ(of(Phase::kExperts), 2 * 0.25) << "two layers are sparse";
  MachineRates crowded = even_rates();
  crowded.expert_slowdown = 1.5;
  EXPECT_DOUBLE_EQ(total(step_seconds(config, specs, job, crowded, 0.25)) - total(seconds), 2 * 0.25 / 2);
  EXPECT_DOUBLE_EQ(of(Phase::kRouter), 2 * 48 / 1e6);
  EXPECT_DOUBLE_EQ(of(Phase::kPlan), 2 * 48 * 2 / 1e6);
  EXPECT_DOUBLE_EQ(of(Phase::kLoss), head_flops(config, 48) / 1e9);
  const double slots = 4.0 * 48 * 2 * 24;
  EXPECT_DOUBLE_EQ(of(Phase::kDispatch) + of(Phase::kCombine), 2 * 4 * 2 * slots / 1e9);
  const Trained trained = trained_elements(specs);
  EXPECT_DOUBLE_EQ(of(Phase::kOptimizer), (trained.dense + trained.experts) / 1e9);
  EXPECT_EQ(of(Phase::kData), 0);
  Job twice = job;
  twice.batch.micro_batches = 2;
  twice.batch.sequences *= 2;
  EXPECT_DOUBLE_EQ(
      step_seconds(config, specs, twice, even_rates(), 0.25)[static_cast<std::size_t>(Phase::kLoss)],
      2 * of(Phase::kLoss));
  twice.layout.processors_per_node = 1;
  twice.layout.ranks_per_node = 3;
  EXPECT_DOUBLE_EQ(
      step_seconds(config, specs, twice, even_rates(), 0.25)[static_cast<std::size_t>(Phase::kLoss)],
      6 * of(Phase::kLoss));
}

TEST(StepCost, WhatTravelsBesideProductsIsHiddenByThem) {
  const ModelConfig config = tiny_config();
  const auto specs = parameter_specs(config, {0, config.num_experts});
  const Job whole = case_of(4, 1);
  Job travelling = whole;
  travelling.exchange.overlap_reduce = travelling.exchange.overlap_gather = true;
  const auto seconds = [&](const Job& job, double experts, Phase phase) {
    return step_seconds(config, specs, job, even_rates(), experts)[static_cast<std::size_t>(phase)];
  };
  for (const Phase phase : {Phase::kReduce, Phase::kOptimizer}) {
    const double exchange = reduction_seconds({1e9, 4, 4, true}, whole, link_rates(even_rates(), whole));
    ASSERT_GT(exchange, 0);
    const double all = seconds(whole, 0, phase), beside_much = seconds(travelling, 1e3, phase),
                 beside_more = seconds(travelling, 1e6, phase);
    EXPECT_LT(beside_much, all);
    EXPECT_EQ(beside_much, beside_more) << "the word table's are left, and what a rank does itself";
    EXPECT_EQ(seconds(whole, 1e3, phase), all);
    EXPECT_LE(seconds(travelling, 0, phase), all);
  }
}

TEST(StepCost, OwnedElementsAreSharedByTheRanksThatHoldThem) {
  EXPECT_DOUBLE_EQ(owned_elements({.dense = 80, .experts = 60}, shape_of(2, 4)), 10 + 30);
}

/// Of one rank in a step, over ranks and steps.
double counted_bytes(TrainingRun& run) {
  constexpr Index kSteps = 3;
  double counted = 0;
  for (Index i = 0; i < kSteps; ++i) counted += static_cast<double>(run.trainer.step(i).message_bytes);
  const Communicator world = Communicator::world();
  counted /= static_cast<double>(kSteps * world.size());
  world.all_sum(std::span(&counted, 1));
  return counted;
}

/// Routing is not even, so what travels is what is expected of it: within 2 % where every slot travels by
/// itself, within 5 % where it depends on which slots of a token go the same way.
void expect_counted_bytes(const MeshShape& shape, DispatcherKind kind, Index nodes,
                          CombineMode mode = CombineMode::kExact, Index chunks = 0) {
  const Index world = shape.world();
  TrainingRun run(shape, {.accumulation = 12 / world % 3 == 0 ? 3 : 1,
                          .dispatcher = kind,
                          .wire = {.combine = mode, .pretended_nodes = nodes},
                          .chunks = chunks});
  Job job = case_of(shape.dp, shape.ep);
  job.layout.ranks_per_node = nodes == 1 ? world : shape.ep / nodes;
  job.exchange.dispatcher = kind;
  job.exchange.combine = mode;
  job.exchange.chunks = chunks;
  job.batch = run.batch;
  const double predicted = step_bytes(
      run.config, with_frozen(parameter_specs(run.config, experts_here(run.config, run.mesh)), {}), job);
  const double counted = counted_bytes(run);
  const double tolerance = kind == DispatcherKind::kHierarchical && nodes > 1 ? 0.05 : 0.02;
  EXPECT_NEAR(predicted, counted, tolerance * counted)
      << shape.text() << ", " << name_of(kind) << " on " << nodes << " nodes";
}

TEST(StepCost, BytesAreThoseThatATrainingStepCounts) {
  for (const MeshShape& shape : meshes_for(Communicator::world().size(), tiny_config().num_experts))
    for (const DispatcherKind kind : kDispatcherKinds) expect_counted_bytes(shape, kind, 1);
}

TEST(StepCost, BytesBetweenPretendedNodesAreThoseThatATrainingStepCounts) {
  for (const MeshShape& shape : meshes_for(Communicator::world().size(), tiny_config().num_experts)) {
    if (shape.ep % 2 != 0) continue;
    for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kHierarchical})
      expect_counted_bytes(shape, kind, 2);
    expect_counted_bytes(shape, DispatcherKind::kHierarchical, 2, CombineMode::kFast);
    for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kHierarchical})
      expect_counted_bytes(shape, kind, 2, CombineMode::kExact, 2);
  }
}

}  // namespace
}  // namespace moeloom
