// Training whose gradients are reduced as layers finish, and whose dense parameters are sharded.
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/parts/node_weights.hpp"

#include "support/expect_error.hpp"
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

enum class Way { kByLayer, kGathered, kSharded };

TrainingRunSettings by(Way way, TrainingRunSettings settings) {
  settings.by_layer = way != Way::kSharded;
  settings.gather_by_layer = way == Way::kGathered;
  settings.shard_dense = way == Way::kSharded;
  return settings;
}

std::vector<NamedRun> runs() {
  std::vector<NamedRun> all = runs_that_may_differ();
  std::erase_if(all, [](const NamedRun& run) { return run.settings.accumulation > 1; });
  const auto add = [&](const char* name, auto change) {
    change(all.emplace_back(NamedRun{name, {}}).settings);
  };
  add("as it is", [](TrainingRunSettings&) {});
  add("split masters", [](TrainingRunSettings& s) { s.masters = Storage::kSplit; });
  add("bf16 masters on two nodes", [](TrainingRunSettings& s) {
    s.masters = Storage::kBf16, s.moments = MomentFormat::kBf16;
    s.wire.pretended_nodes = 2, s.dispatcher = DispatcherKind::kHierarchical;
  });
  add("bf16 gradients", [](TrainingRunSettings& s) { s.gradients = Storage::kBf16; });
  add("two nodes of which each passes on", [](TrainingRunSettings& s) { s.sum_nodes = 2; });
  add("the same, bf16 gradients and masters", [](TrainingRunSettings& s) {
    s.sum_nodes = 2, s.gradients = Storage::kBf16, s.masters = Storage::kBf16;
  });
  add("the same, biases, which are floats", [](TrainingRunSettings& s) {
    s.sum_nodes = 2, s.gradients = Storage::kBf16;
    s.model = biased_config(), s.z_loss_coef = 0;
  });
  add("the same, rows in chunks", [](TrainingRunSettings& s) {
    s.sum_nodes = s.wire.pretended_nodes = 2;
    s.dispatcher = DispatcherKind::kHierarchical, s.chunks = 2;
  });
  add("Muon", [](TrainingRunSettings& s) { s.optimizer_kind = OptimizerKind::kMuon; });
  add("replicas", [](TrainingRunSettings& s) { s.rebalance = kFreeWeights; });
  add("replicas in the node's memory, split masters and bf16 gradients", [](TrainingRunSettings& s) {
    s.dispatcher = DispatcherKind::kShared, s.rebalance = kFreeWeights;
    s.masters = Storage::kSplit, s.gradients = Storage::kBf16;
  });
  add("in chunks", [](TrainingRunSettings& s) { s.chunks = 2; });
  add("made again", [](TrainingRunSettings& s) { s.recompute = Recompute::kBlock; });
  add("checks", [](TrainingRunSettings& s) { s.check_replicas = 2, s.check_steps = 2; });
  return all;
}

/// More ranks than two, which take turns on few processors, are on meshes with two axes alone; those with one
/// are two ranks'.
TEST(TrainerSharded, HasTheBitsOfWholeParametersReducedAtTheEnd) {
  const Index world = Communicator::world().size();
  for (const MeshShape& shape : meshes_of(world)) {
    if (world > 2 && (shape.dp == 1 || shape.ep == 1)) continue;
    for (const auto& [name, settings] : runs()) {
      SCOPED_TRACE(name_of(shape) + ", " + name);
      const Outcome whole = outcome_of(shape, settings);
      for (const Way way : {Way::kByLayer, Way::kGathered, Way::kSharded})
        expect_same_bits(outcome_of(shape, by(way, settings)), whole);
    }
  }
}

TEST(TrainerSharded, ReducesOnlyTheLastMicroBatchOfWholeParameters) {
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    SCOPED_TRACE(name_of(shape));
    TrainingRunSettings settings{.global_batch = 24, .accumulation = 2};
    const Outcome whole = outcome_of(shape, settings);
    for (const Way way : {Way::kByLayer, Way::kGathered})
      expect_same_bits(outcome_of(shape, by(way, settings)), whole);
    // Sharded gradients are summed over ranks before micro-batches: sums of floats in another order.
    const Outcome sharded = outcome_of(shape, by(Way::kSharded, settings));
    EXPECT_LE(relative_gap(sharded.losses, whole.losses), 1e-4);
  }
}

/// Of the world, whatever the mesh.
TEST(TrainerSharded, HasTheSameBitsOnEveryMeshWithMicroBatches) {
  const Index world = Communicator::world().size();
  const TrainingRunSettings settings = by(Way::kSharded, {.global_batch = 24, .accumulation = 2});
  const std::vector<double> first = TrainingRun(shape_of(world, 1), settings).losses(3);
  EXPECT_LE(relative_gap(TrainingRun(shape_of(1, world), settings).losses(3), first), 1e-5);
}

TEST(TrainerSharded, HoldsWhatItOwnsAndTheNodeOneCopy) {
  const Index world = Communicator::world().size();
  if (world == 1) return;
  TrainingRun run(shape_of(1, world), by(Way::kSharded, {}));
  ASSERT_NE(run.store.dense().weights, nullptr);
  run.trainer.step(0);
  std::vector<bool> owned(run.store.gradients(Placement::kWorld).size(), false);
  for (const OwnedBlock& block : run.optimizer.owned_blocks())
    if (block.placement == Placement::kWorld) std::fill_n(owned.begin() + block.begin, block.count, true);
  const std::span<const float> gradients = run.store.gradients(Placement::kWorld);
  Index left = 0;
  for (std::size_t i = 0; i < owned.size(); ++i) left += !owned[i] && gradients[i] != 0 ? 1 : 0;
  EXPECT_EQ(left, 0) << "of what others own, nothing is left";
  // What one rank writes all see.
  const Parameter& norm = run.store.find("model.norm.weight");
  run.store.settle();
  if (norm.is_filled_here) norm.value.flat()[0] = 42;
  run.store.settle();
  EXPECT_EQ(norm.value.flat()[0], 42);
  std::vector<std::int64_t> fills = {norm.is_filled_here ? 1 : 0};
  Communicator::world().all_sum(std::span(fills));
  EXPECT_EQ(fills[0], 1);
}

/// Between two steps nobody else reads weights that may be on their way.
TEST(TrainerSharded, RefusesToReadWeightsThatStillTravel) {
  const Index world = Communicator::world().size();
  if (world == 1) return;
  TrainingRun run(shape_of(world, 1), by(Way::kGathered, {}));
  run.trainer.step(0);
  EXPECT_FALSE(run.store.is_whole());
  const Batch batch = run.batches.train(1, 0, run.mesh.world().rank());
  EXPECT_THROW(run.decoder.evaluate(batch), ShapeError);
  run.trainer.settle();
  EXPECT_TRUE(run.store.is_whole());
  EXPECT_GT(run.decoder.evaluate(batch).nll_sum, 0);
}

TEST(TrainerSharded, RefusesExactSums) {
  const std::vector<ParameterSpec> specs = parameter_specs(tiny_config(), {0, tiny_config().num_experts});
  EXPECT_THROW(ParameterStore(specs, {.dense = {.gradients = true}}, {.sequences = 1, .per_step = 4}),
               ShapeError);
}

}  // namespace
}  // namespace moeloom
