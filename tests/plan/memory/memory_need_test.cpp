#include "plan/memory/memory_need.hpp"

#include "model/freeze.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "train/lasting_memory.hpp"
#include "train/training_run.hpp"

#include "support/small_model.hpp"
#include <gtest/gtest.h>

// What a real job holds is compared in tests/app/commands/plan_command_test.cpp, where it has a process of
// its own.
namespace moeloom {
namespace {

using testing::tiny_config;

MeshShape shape_of(Index dp, Index ep) {
  return {dp, ep, {"dp", "ep"}};
}

/// Of sequences of 16 tokens.
Job job_with(Index tokens, const MeshShape& mesh = shape_of(1, 1),
             DispatcherKind kind = DispatcherKind::kAlltoall) {
  return {.batch = {.sequences = mesh.world() * tokens / 16, .length = 16},
          .exchange = {.dispatcher = kind},
          .layout = {.mesh = mesh}};
}

TEST(MemoryNeed, PackedFacesAreTwoOfFp32OrTheSameBytesOfBf16) {
  const auto specs = parameter_specs(tiny_config(), {0, 4});
  const double weights = lasting_memory(specs, {}).expert_weights;
  EXPECT_EQ(packed_bytes(specs, DType::kF32), 2 * weights);
  EXPECT_EQ(packed_bytes(specs, DType::kBF16), weights);
}

TEST(MemoryNeed, ASaveCopiesAnAdapterAndNotWhatRestsBesideIt) {
  ModelConfig config;
  const auto copied = [&] { return save_copy_bytes(parameter_specs(config, {0, config.num_experts}), {}); };
  const double whole = copied();
  EXPECT_EQ(whole, 3 * 4.0 * static_cast<double>(config.total_parameters()));
  config.adapter = resolve_adapter(config, {.rank = 2, .targets = {"attention"}});
  double trained = 0;
  for (const TensorSpec& tensor : adapter_tensor_specs(config))
    trained += static_cast<double>(tensor.shape[0] * tensor.shape[1]);
  EXPECT_EQ(copied(), 3 * 4 * trained);
}

TEST(MemoryNeed, AWeightThatRestsInHalvesTakesHalfAsMuch) {
  ModelConfig config;
  config.adapter = resolve_adapter(config, {.rank = 2});
  const auto experts = [&] {
    return lasting_memory(parameter_specs(config, {0, config.num_experts}), {}).expert_weights;
  };
  const double floats = experts();
  double trained = 0;
  for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
    if (spec.adapter && spec.placement == Placement::kExperts)
      trained += 4.0 * static_cast<double>(spec.rows * spec.cols);
  for (const Storage stored : {Storage::kBf16, Storage::kF16}) {
    config.adapter->base_stored = stored;
    const double factors = experts() - (floats - experts());  // what is left twice is the factors' part
    EXPECT_EQ(factors, trained) << name_of(stored);
  }
}

TEST(MemoryNeed, AdaptersOfExpertsTakeWhatBackwardKeepsOfEachRow) {
  ModelConfig config = tiny_config();
  const auto bytes = [&] {
    return buffer_bytes(config, parameter_specs(config, {0, 4}), job_with(64), {.at_once = 128});
  };
  const double plain = bytes();
  config.adapter = resolve_adapter(config, {.rank = 2, .targets = {"attention"}});
  EXPECT_EQ(bytes(), plain);
  config.adapter = resolve_adapter(config, {.rank = 2, .targets = {"experts"}});
  EXPECT_EQ(bytes() - plain, 4.0 * 128 * (2 + 2 * 2 + 2)) << "U, dU of gate and up, dU of down";
}

TEST(MemoryNeed, DropoutHoldsSomeRowsAndTheirKeys) {
  ModelConfig config = tiny_config();  // sparse layers 0 and 2
  const auto bytes = [&](const NamePatterns& targets, double dropout, const Job& job) {
    config.adapter = resolve_adapter(config, {.rank = 2, .dropout = dropout, .targets = targets});
    return buffer_bytes(config, parameter_specs(config, {0, 4}), job, {.at_once = 2 * job.tokens()});
  };
  const auto more = [&](const NamePatterns& targets, const Job& job) {
    return bytes(targets, 0.1, job) - bytes(targets, 0, job);
  };
  Job job = job_with(2992);
  EXPECT_EQ(more({"router"}, job), 4.0 * 256 * 24 + 8 * 2992);
  EXPECT_EQ(more({"mlp"}, job), 4.0 * 256 * 40 + 8 * 2992) << "down_proj reads most";
  EXPECT_EQ(more({"experts"}, job), 4.0 * 5984 * 24 + 2 * 8 * 5984)
      << "few columns of all rows, keys of two layers";
  job.keeping.recompute = Recompute::kExperts;
  EXPECT_EQ(more({"experts"}, job), 4.0 * 5984 * 24 + 8 * 5984);
  job.batch.sequences = 1;
  EXPECT_EQ(more({"experts", "router"}, job), 4.0 * 32 * 24 + 8 * 32 + 8 * 16);
}

TEST(MemoryNeed, ActivationsGrowWithTokensAndLayers) {
  ModelConfig config = tiny_config();
  const auto bytes = [&](Index tokens) {
    return activation_bytes(config, job_with(tokens), {.at_once = 2 * tokens});
  };
  const double fixed = 2 * bytes(64) - bytes(128);  // counts by expert
  EXPECT_NEAR(bytes(256) - fixed, 4 * (bytes(64) - fixed), 1);
  // The dense layer of hand arithmetic, per token: input, normed, middle, normed 4 x 24; qkv 64, normed q and
  // k 48 with 6 scales; context 32, 4 sums of exponentials, 2 scales; 2 x 40 of the MLP.
  config.num_hidden_layers = 1;
  config.mlp_only_layers = {0};
  EXPECT_EQ(bytes(64), 4.0 * 64 * (4 * 24 + 64 + 48 + 6 + 32 + 4 + 2 + 80));
}

TEST(MemoryNeed, WhatBackwardMakesAgainIsHeldOnceForAllLayers) {
  ModelConfig config = tiny_config();
  config.mlp_only_layers.clear();  // all sparse alike
  const auto specs = parameter_specs(config, {0, 4});
  const auto bytes = [&](Recompute recompute) {
    Job job = job_with(64);
    job.keeping.recompute = recompute;
    return std::pair(activation_bytes(config, job, {.at_once = 128}),
                     buffer_bytes(config, specs, job, {.at_once = 128}));
  };
  const auto [kept, buffers] = bytes(Recompute::kNone);
  const auto layers = static_cast<double>(config.num_hidden_layers);
  // A row keeps its input, gate and up, and its weight; a token what two norms give.
  const double experts =
      4.0 * 128 * static_cast<double>(24 + 2 * config.moe_intermediate_size + 1) + 4.0 * 64 * 2 * 24;
  const auto [without_experts, more] = bytes(Recompute::kExperts);
  EXPECT_EQ(kept - without_experts, layers * experts);
  EXPECT_EQ(more - buffers, experts);
  // The dense layer of hand arithmetic below without its input, norms and MLP; in the buffers a residual
  // stream too.
  const double block = 4.0 * 64 * (24 + 64 + 48 + 6 + 32 + 4 + 2);
  const auto [without_blocks, most] = bytes(Recompute::kBlock);
  EXPECT_EQ(without_experts - without_blocks, layers * block);
  EXPECT_EQ(most - more, block + 4.0 * 64 * 24);
}

TEST(MemoryNeed, LargeArraysTakeWholeHugePages) {
  ModelConfig config = tiny_config();
  config.num_hidden_layers = 1;
  config.mlp_only_layers = {0};
  const double bytes = activation_bytes(config, job_with(40000), {.at_once = 80000});
  const double exact = 4.0 * 40000 * (4 * 24 + 64 + 48 + 6 + 32 + 4 + 2 + 80);
  EXPECT_GT(bytes, exact);
  EXPECT_LT(bytes, exact + 11 * (2 << 20));
}

TEST(MemoryNeed, RowsUnderWayAreTheDispatchersOwn) {
  const ModelConfig config = tiny_config();
  const auto specs = parameter_specs(config, {0, 2});
  Index chunks = 0;
  const auto bytes = [&](Index ep, DispatcherKind kind) {
    Job job = job_with(128, shape_of(1, ep), kind);
    job.exchange.chunks = chunks;
    return buffer_bytes(config, specs, job, {.at_once = 256});
  };
  const double alone = bytes(1, DispatcherKind::kAlltoall);
  double reduced = 0;  // the scratch of the dense gradients' reduction
  for (const ParameterSpec& spec : specs)
    if (spec.placement == Placement::kWorld) reduced += 4.0 * static_cast<double>(spec.rows * spec.cols);
  EXPECT_EQ(bytes(2, DispatcherKind::kAlltoall) - alone, reduced + 2 * 4.0 * 256 * 24);
  EXPECT_LT(bytes(2, DispatcherKind::kShared), bytes(2, DispatcherKind::kAlltoall));
  chunks = 2;
  EXPECT_EQ(bytes(2, DispatcherKind::kAlltoall) - alone, reduced + 3 * 4.0 * 256 * 24);
  EXPECT_EQ(bytes(2, DispatcherKind::kHierarchical) - alone, reduced + (2 * 256 + 2 * 128) * 4.0 * 24)
      << "sums, and tokens once a node";
}

TEST(MemoryNeed, ReplicasAreWeightsOfEachLayerAndSumsOfBranches) {
  const ModelConfig config = tiny_config();  // sparse layers 0 and 2
  const auto specs = parameter_specs(config, {0, 2});
  const auto job_of_mesh = [](Index dp, Index ep) { return Job{.layout = {.mesh = shape_of(dp, ep)}}; };
  const Index an_expert = 3 * config.hidden_size * config.moe_intermediate_size * 4;
  Index sparse = 0;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) sparse += config.is_sparse(layer) ? 1 : 0;
  const Index tables = 2 * 4 * (2 * 8 + 2 * 4);
  // Of both own experts the owner's branch and the other rank's, and of both replicas one.
  EXPECT_EQ(replica_bytes(config, specs, job_of_mesh(1, 2)),
            sparse * (2 * an_expert + tables) + 6 * an_expert);
  EXPECT_EQ(replica_bytes(config, specs, job_of_mesh(2, 1)), 0);
  std::set<std::string> experts;
  for (const ParameterSpec& spec : specs)
    if (spec.placement == Placement::kExperts) experts.insert(spec.name);
  EXPECT_EQ(replica_bytes(config, with_frozen(specs, experts), job_of_mesh(1, 2)),
            sparse * (2 * an_expert + tables))
      << "what is frozen has no sums";
  Job on_a_node = job_of_mesh(1, 2);
  on_a_node.exchange.dispatcher = DispatcherKind::kShared;
  on_a_node.layout.ranks_per_node = 2;
  EXPECT_EQ(replica_bytes(config, specs, on_a_node), sparse * tables + 1.25 * 6 * an_expert)
      << "read where they lie";
  Job again = job_of_mesh(1, 2);
  again.keeping.recompute = Recompute::kExperts;
  EXPECT_EQ(replica_bytes(config, specs, again), sparse * tables + 2 * an_expert + 6 * an_expert)
      << "one set of weights";
  Job exact = job_of_mesh(1, 2);
  exact.batch.exact = 1;
  // Of both own experts the other rank's, of both replicas one, and a leaf; eight bytes a number.
  EXPECT_EQ(replica_bytes(config, specs, exact), sparse * (2 * an_expert + tables) + 5 * 2 * an_expert);
}

/// Weights travel for nothing, so that whatever may move does.
constexpr RebalanceRates kFreeWeights{.row_products = 3000, .on_node = {1, 0}, .between_nodes = {2, 0}};

TEST(MemoryNeed, ReplicasOfARunTakeNoMoreThanIsCountedAndNotMuchLess) {
  const Index world = Communicator::world().size();
  if (world == 1) GTEST_SKIP() << "one rank has nobody to hold a replica";
  double largest_share = 0;  // not every run splits every expert
  for (const auto& [experts, exact] : {std::pair<Index, Index>{4, 0}, {8, 0}, {5, 0}, {4, 1}, {5, 1}}) {
    SCOPED_TRACE(std::to_string(experts) + ", exact " + std::to_string(exact));
    testing::TrainingRun run(testing::shape_of(1, world),
                             {.experts = experts, .rebalance = kFreeWeights, .exact = exact});
    run.losses(4);
    const auto specs = parameter_specs(run.config, experts_of(experts, world, 0));
    const double counted =
        replica_bytes(run.config, specs, {.batch = {.exact = exact}, .layout = {.mesh = run.mesh.shape()}});
    const double held = run.mesh.world().all_max(static_cast<double>(run.decoder.replica_bytes()));
    EXPECT_LE(held, counted);
    largest_share = std::max(largest_share, held / counted);
  }
  // What is counted is of ranks that both give and take replicas; of two one gives, the other takes, and of
  // three not all do both.
  EXPECT_GE(largest_share, world == 2 ? 0.35 : world == 3 ? 0.5 : 0.6);
}

}  // namespace
}  // namespace moeloom
