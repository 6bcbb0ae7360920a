// Exact sums: losses and weights have the same bits on every mesh and for any number of micro-batches.
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <optional>

#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

TrainingRunSettings exact_run(const TrainingRunSettings& changed = {}) {
  TrainingRunSettings settings = changed;
  if (settings.exact == 0) settings.exact = 1;
  return settings;
}

/// Whether every rank has a whole leaf in each micro-batch.
bool divides(const TrainingRunSettings& settings, Index world) {
  return settings.global_batch % (world * settings.accumulation * settings.exact) == 0;
}

void expect_one_result_on_every_mesh(const TrainingRunSettings& settings, const Outcome& reference) {
  for (const MeshShape& shape : meshes_of_every_size()) {
    if (!divides(settings, shape.world()) || shape.ep > settings.experts) continue;
    SCOPED_TRACE(name_of(shape) + ", micro-batches " + std::to_string(settings.accumulation));
    expect_same_bits(outcome_of(shape, settings), reference);
  }
}

TEST(ExactRun, HasTheSameBitsOnEveryMeshOfEverySize) {
  for (const Index experts : {4, 6, 12}) {
    const TrainingRunSettings settings = exact_run({.experts = experts});
    const Outcome alone = outcome_of(shape_of(1, 1), settings);
    EXPECT_LT(alone.losses[2 * kOutcomeSteps - 2], alone.losses[0]) << "nothing was learned";
    expect_one_result_on_every_mesh(settings, alone);
  }
}

TEST(ExactRun, HasTheSameBitsForAnyNumberOfMicroBatches) {
  for (const BalanceOver over : {BalanceOver::kSequence, BalanceOver::kGlobalBatch}) {
    TrainingRunSettings settings =
        exact_run({.experts = 6, .routing = {.balance = {.pooled = false, .over = over}}});
    const Outcome alone = outcome_of(shape_of(1, 1), settings);
    for (const Index accumulation : {1, 2, 3, 6}) {
      settings.accumulation = accumulation;
      expect_one_result_on_every_mesh(settings, alone);
    }
  }
}

/// A loss over micro-batches is another loss for another number of them, but the same on every mesh.
TEST(ExactRun, HasTheSameBitsOnEveryMeshForOneNumberOfMicroBatches) {
  TrainingRunSettings settings = exact_run({.accumulation = 2});
  settings.routing.training = {.capacity_factor = 1.1};
  expect_one_result_on_every_mesh(settings, outcome_of(shape_of(1, 1), settings));
  settings.routing.training = {.expert_choice = true};
  settings.routing.dtype = RouterDType::kFp64;
  expect_one_result_on_every_mesh(settings, outcome_of(shape_of(1, 1), settings));
}

TEST(ExactRun, HasTheSameBitsForEveryDispatcherChunksThreadsAndPackedFaces) {
  TrainingRunSettings settings = exact_run({.experts = 5});
  const Outcome alone = outcome_of(shape_of(1, 1), settings);
  const Index world = Communicator::world().size();
  for (const DispatcherKind kind : kDispatcherKinds) {
    SCOPED_TRACE(name_of(kind));
    settings.dispatcher = kind;
    settings.wire.pretended_nodes = 2;
    for (const Index ep : {std::max<Index>(world / 2, 1), std::min<Index>(world, 3)})
      if (world % ep == 0) expect_same_bits(outcome_of(shape_of(world / ep, ep), settings), alone);
  }
  settings.dispatcher = DispatcherKind::kAlltoall;
  settings.wire = {};
  const Index ep = world % 3 == 0 ? 3 : world;
  settings.chunks = 2;
  expect_same_bits(outcome_of(shape_of(world / ep, ep), settings), alone);
  settings.chunks = 0;
  settings.packed = true;
  set_threads(3);
  const Outcome threaded = outcome_of(shape_of(world / ep, ep), settings);
  set_threads(1);
  expect_same_bits(threaded, alone);
}

TEST(ExactRun, HasTheSameBitsForLeavesOfTwoSequencesAndForLatentAttention) {
  TrainingRunSettings settings = exact_run({.experts = 12, .exact = 2});
  expect_one_result_on_every_mesh(settings, outcome_of(shape_of(1, 1), settings));
  settings = exact_run({.experts = 6, .model = deepseek_config()});
  settings.z_loss_coef = 0;
  expect_one_result_on_every_mesh(settings, outcome_of(shape_of(1, 1), settings));
  settings.frozen = {"model.norm.weight", "model.embed_tokens.weight"};
  settings.model = tiny_config();
  expect_one_result_on_every_mesh(settings, outcome_of(shape_of(1, 1), settings));
}

TEST(ExactRun, HasTheSameBitsForShortConvolutionsAndDeltaNets) {
  for (const char* family : {"lfm2_moe", "qwen3_next"}) {
    SCOPED_TRACE(family);
    TrainingRunSettings settings = exact_run({.experts = 6, .model = hybrid_config(family)});
    settings.aux_loss_coef = settings.z_loss_coef = 0;
    expect_one_result_on_every_mesh(settings, outcome_of(shape_of(1, 1), settings));
  }
}

TEST(ExactRun, IsWithinRoundingOfTheTreeOfRanks) {
  const Outcome exact = outcome_of(shape_of(1, 1), exact_run()), tree = outcome_of(shape_of(1, 1), {});
  for (std::size_t i = 0; i < exact.losses.size(); ++i)
    EXPECT_NEAR(exact.losses[i], tree.losses[i], 1e-5 * tree.losses[i]);
}

TEST(ExactRun, HasTheSameBitsWithReplicas) {
  const Index world = Communicator::world().size();
  std::vector<NamedRun> cases(3, {"leaves of two sequences", exact_run({.experts = 6})});
  cases[0].settings.exact = 2, cases[0].settings.global_batch = 24;
  cases[1].name = "shared, experts that do not divide, micro-batches";
  cases[1].settings.accumulation = 2, cases[1].settings.global_batch = 24;
  cases[1].settings.aux_loss_coef = 0;  // of a micro-batch
  cases[1].settings.dispatcher = DispatcherKind::kShared, cases[1].settings.experts = 5;
  cases[2].name = "two nodes, in chunks, biases";
  cases[2].settings.dispatcher = DispatcherKind::kHierarchical, cases[2].settings.wire.pretended_nodes = 2;
  cases[2].settings.chunks = 2, cases[2].settings.z_loss_coef = 0;
  cases[2].settings.model = biased_config();
  for (auto& [name, settings] : cases) {
    SCOPED_TRACE(name);
    const Outcome alone = outcome_of(shape_of(1, 1), settings);
    settings.rebalance = kFreeWeights;
    for (const Index ep : std::set<Index>{2, world}) {
      if (world == 1 || world % ep != 0 || ep > settings.experts) continue;
      SCOPED_TRACE(ep);
      TrainingRun run(shape_of(world / ep, ep), settings);
      Outcome got{run.losses(kOutcomeSteps), run.weights_by_name()};
      got.losses.push_back(run.trainer.evaluate(run.sampler.heldout(7, 2, run.mesh.world().rank())));
      expect_same_bits(got, alone);
      EXPECT_GT(total(sum_over(run.mesh.world(), run.decoder.rebalance_counts())).replicas, 0);
    }
  }
}

TEST(ExactRun, StopsAtAGradientThatIsNotFiniteAndSaysWhere) {
  const MeshShape shape = shape_of(1, Communicator::world().size() % 3 == 0 ? 3 : 1);
  TrainingRun run(shape, exact_run({.experts = 6}));
  run.trainer.step(0);
  const Parameter& norm = run.store.find("model.norm.weight");
  norm.value.flat()[3] = 1e30f;  // finite losses, gradients beyond what a sum may hold
  try {
    run.trainer.step(1);
    ADD_FAILURE() << "no error";
  } catch (const AgreedError& error) {
    EXPECT_NE(std::string(error.what()).find("the gradient is not finite; first in that of "),
              std::string::npos)
        << error.what();
  }
}

TEST(ExactRun, RefusesWhatAddsInAnOrderOfItsOwn) {
  const auto refuses = [](const TrainingRunSettings& settings, const std::string& word) {
    try {
      TrainingRun run(shape_of(1, 1), settings);
      ADD_FAILURE() << word << " is not refused";
    } catch (const ShapeError& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  refuses(exact_run({.fused = false}), "OpenBLAS");
  refuses(exact_run({.wire = {.dtype = WireDType::kBf16}}), "rounded");
  refuses(exact_run({.routing = {.row_budget = 5}}), "slices");
  refuses(exact_run({.global_batch = 6, .exact = 4}), "leaves");
}

}  // namespace
}  // namespace moeloom
