// Gradients of experts that are kept as bf16.
#include "model/hf/parameters/parameter_specs.hpp"
#include "train/lasting_memory.hpp"
#include "train/non_finite.hpp"

#include <limits>

#include "support/expect_error.hpp"
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

TrainingRunSettings with_halves(TrainingRunSettings settings) {
  settings.gradients = Storage::kBf16;
  return settings;
}

void backward(TrainingRun& run) {
  run.store.restart_gradients();
  for (Index micro_batch = 0; micro_batch < run.batch.micro_batches; ++micro_batch)
    run.decoder.forward_backward(run.batches.train(0, micro_batch, run.mesh.world().rank()), {.lm = 0.01});
}

std::vector<std::uint16_t> rounded(std::span<const float> numbers) {
  std::vector<std::uint16_t> halves;
  for (const float number : numbers) halves.push_back(float_to_bf16(number));
  return halves;
}

TEST(HalfGradients, OfExpertsAreTheFloatsRoundedOnceAndDenseOnesAreFloats) {
  for (const MeshShape& shape : meshes_of_every_size())
    for (const Storage masters : kStorages)
      for (const bool fused : {true, false}) {
        SCOPED_TRACE(name_of(shape) + ", masters " + std::string(name_of(masters)));
        const TrainingRunSettings settings{.fused = fused, .masters = masters};
        TrainingRun floats(shape, settings), halves(shape, with_halves(settings));
        backward(floats);
        backward(halves);
        Index in_halves = 0;
        for (const Parameter& found : halves.store.parameters()) {
          const Parameter& exact = floats.store.find(found.spec.name);
          const bool is_half = found.spec.placement == Placement::kExperts && found.spec.is_matrix;
          ASSERT_EQ(found.grad_halves.data != nullptr, is_half) << found.spec.name;
          if (is_half) {
            const auto numbers = found.grad_halves.flat();
            EXPECT_EQ(std::vector(numbers.begin(), numbers.end()), rounded(exact.grad.flat()))
                << found.spec.name;
            in_halves += found.grad_halves.size();
          } else {
            EXPECT_TRUE(std::ranges::equal(found.grad.flat(), exact.grad.flat())) << found.spec.name;
          }
        }
        EXPECT_GT(in_halves, 0);
        EXPECT_EQ(std::ssize(halves.store.half_gradients(Placement::kExperts).numbers), in_halves);
      }
}

/// Of a micro-batch that adds, the sum is rounded too: at most an eighth of a per cent a time.
TEST(HalfGradients, OfSeveralMicroBatchesAreRoundedEachTime) {
  const MeshShape shape = shape_of(1, Communicator::world().size());
  const TrainingRunSettings settings{.global_batch = 24, .accumulation = 2};
  TrainingRun floats(shape, settings), halves(shape, with_halves(settings));
  backward(floats);
  backward(halves);
  double gap = 0, size = 0;
  for (const Parameter& found : halves.store.parameters()) {
    if (found.grad_halves.data == nullptr) continue;
    const auto exact = floats.store.find(found.spec.name).grad.flat();
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double difference = bf16_to_float(found.grad_halves.flat()[i]) - exact[i];
      gap += difference * difference;
      size += static_cast<double>(exact[i]) * exact[i];
    }
  }
  EXPECT_GT(gap, 0);
  EXPECT_LE(std::sqrt(gap / size), 2.0 / 512);
}

TEST(HalfGradients, TrainAsFloatsDoOnEveryMesh) {
  const Index world = Communicator::world().size();
  constexpr Index kSteps = 14;
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    const TrainingRunSettings settings{.optimizer_kind = kind};
    const std::vector<double> exact = TrainingRun(shape_of(world, 1), settings).losses(kSteps);
    const double last = exact[exact.size() - 2];
    EXPECT_LT(last, 0.9 * exact[0]) << "it learns";
    for (const MeshShape& shape : meshes_of(world)) {
      SCOPED_TRACE(shape.text() + ", " + std::string(name_of(kind)));
      const std::vector<double> found = TrainingRun(shape, with_halves(settings)).losses(kSteps);
      EXPECT_EQ(found[0], exact[0]) << "the first loss is that of the same weights";
      EXPECT_NEAR(found[1], exact[1], 1e-3 * exact[1]) << "norm";
      EXPECT_NEAR(found[found.size() - 2], last, 0.02 * last);
      EXPECT_NE(found, exact);
    }
  }
}

TEST(HalfGradients, HaveTheSameBitsWhicheverWayRowsTravelAndGradientsAreReduced) {
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    SCOPED_TRACE(name_of(shape));
    const TrainingRunSettings settings = with_halves({.moments = MomentFormat::kBf16});
    const std::vector<double> first = TrainingRun(shape, settings).losses(4);
    const auto expect_same = [&](const char* name, auto change) {
      TrainingRunSettings other = settings;
      change(other);
      EXPECT_EQ(TrainingRun(shape, other).losses(4), first) << name;
    };
    expect_same("checked", [](TrainingRunSettings& s) { s.check_replicas = 2, s.check_steps = 2; });
    expect_same("shared", [](TrainingRunSettings& s) { s.dispatcher = DispatcherKind::kShared; });
    expect_same("by layer", [](TrainingRunSettings& s) { s.by_layer = true; });
    expect_same("sharded", [](TrainingRunSettings& s) { s.shard_dense = true; });
    expect_same("packed", [](TrainingRunSettings& s) { s.packed = true; });
    expect_same("in chunks", [](TrainingRunSettings& s) { s.chunks = 2; });
    expect_same("replicas", [](TrainingRunSettings& s) { s.rebalance = kFreeWeights; });
    expect_same("replicas in the node's memory", [](TrainingRunSettings& s) {
      s.dispatcher = DispatcherKind::kShared, s.rebalance = kFreeWeights;
    });
    expect_same("made again", [](TrainingRunSettings& s) { s.recompute = Recompute::kBlock; });
  }
}

TEST(HalfGradients, ReduceByLayerTheLastMicroBatchAlone) {
  for (const MeshShape& shape : meshes_of_every_size()) {
    SCOPED_TRACE(name_of(shape));
    TrainingRunSettings settings = with_halves({.global_batch = 24, .accumulation = 2});
    const std::vector<double> first = TrainingRun(shape, settings).losses(3);
    settings.by_layer = true;
    EXPECT_EQ(TrainingRun(shape, settings).losses(3), first);
    settings.shard_dense = true;
    EXPECT_LE(relative_gap(TrainingRun(shape, settings).losses(3), first), 1e-4);
  }
}

TEST(HalfGradients, OfReplicasAreRoundedWithTheirOwnersInEachMicroBatch) {
  const MeshShape shape = shape_of(1, Communicator::world().size());
  TrainingRunSettings settings = with_halves({.global_batch = 24, .accumulation = 2});
  for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kShared}) {
    SCOPED_TRACE(name_of(kind));
    settings.dispatcher = kind;
    settings.rebalance.reset();
    const Outcome plain = outcome_of(shape, settings);
    settings.rebalance = kFreeWeights;
    expect_same_bits(outcome_of(shape, settings), plain);
  }
}

TEST(HalfGradients, AreSearchedForWhatIsNotFinite) {
  TrainingRun run(shape_of(1, Communicator::world().size()), with_halves({}));
  backward(run);
  EXPECT_EQ(first_non_finite_gradient(run.store, run.mesh.world()), "");
  const Parameter& down = run.store.find("model.layers.0.mlp.experts.down_proj");
  if (run.mesh.world().rank() == 0)
    down.grad_halves.data[1] = float_to_bf16(std::numeric_limits<float>::infinity());
  EXPECT_NE(
      first_non_finite_gradient(run.store, run.mesh.world()).find("model.layers.0.mlp.experts.down_proj"),
      std::string::npos);
  run.optimizer.reduce_gradients();
  EXPECT_FALSE(std::isfinite(run.optimizer.gradient_norm()));
}

TEST(HalfGradients, TakeHalfTheMemoryThatIsCounted) {
  const ModelConfig config = tiny_config();
  const auto floats = parameter_specs(config, {0, config.num_experts});
  const auto halves = with_gradients(floats, Storage::kBf16);
  ParameterStore store(halves);
  const LastingMemory need = lasting_memory(halves, {});
  const LastingMemory before = lasting_memory(floats, {});
  EXPECT_EQ(need.expert_gradients, before.expert_gradients / 2);
  EXPECT_EQ(need.dense_gradients, before.dense_gradients);
  EXPECT_EQ(need.expert_gradients,
            static_cast<double>(store.half_gradients(Placement::kExperts).numbers.size_bytes() +
                                store.gradients(Placement::kExperts).size_bytes()));
}

TEST(HalfGradients, AreRefusedWhereTheyCannotBe) {
  const ModelConfig config = tiny_config();
  const auto specs = with_gradients(parameter_specs(config, {0, config.num_experts}), Storage::kBf16);
  EXPECT_THROW(ParameterStore(specs, {}, {.sequences = 1, .per_step = 4}), ShapeError) << "exact sums";
  auto dense = parameter_specs(config, {0, config.num_experts});
  for (ParameterSpec& spec : dense)
    if (spec.name == "lm_head.weight" || spec.name == "model.embed_tokens.weight")
      spec.gradient = Storage::kBf16;
  EXPECT_THROW(ParameterStore{dense}, ShapeError) << "a dense weight's";
  auto mixed = specs;
  for (ParameterSpec& spec : mixed)
    if (spec.name == "model.layers.0.mlp.experts.down_proj") spec.gradient = Storage::kFp32;
  for (ParameterSpec& spec : mixed)
    if (spec.placement == Placement::kExperts) spec.stored = Storage::kSplit;
  EXPECT_THROW(ParameterStore{mixed}, ShapeError) << "two ways in one arena";
}

}  // namespace
}  // namespace moeloom
