#include "train/routing/routing_recorder.hpp"

#include "moeloom/base/parallel.hpp"

#include "routing_run.hpp"
#include "support/expect_error.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

constexpr Index kSteps = 3;

std::string recorded_bytes(const MeshShape& shape, Index steps, const TrainingRunSettings& settings = {}) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  const auto path = folder.path() / ("part" + std::to_string(world.rank() / static_cast<int>(shape.world())));
  RecordedRun(path, shape, settings).record(0, steps);
  world.barrier();
  return read_bytes(path);
}

TEST(RoutingRecorder, FileIsTheSameAtEveryEpDispatcherAndNumberOfThreads) {
  const Index world = Communicator::world().size();
  const std::string all_dp = recorded_bytes(shape_of(world, 1), kSteps);
  for (const MeshShape& shape : meshes_for(world, tiny_config().num_experts))
    for (const DispatcherKind kind : kDispatcherKinds)
      EXPECT_EQ(recorded_bytes(shape, kSteps, {.dispatcher = kind}), all_dp)
          << shape.text() << ", " << name_of(kind);
  set_threads(3);
  EXPECT_EQ(recorded_bytes(shape_of(1, world), kSteps), all_dp) << "3 threads";
  set_threads(1);
}

/// The first step: micro-batches add gradients in another order, which later weights show in their last bits.
TEST(RoutingRecorder, FileOfTheFirstStepIsTheSameForAnyNumberOfRanksAndMicroBatches) {
  const TrainingRunSettings whole{.global_batch = 24};
  const std::string alone = recorded_bytes(shape_of(1, 1), 1, whole);
  for (const MeshShape& shape : meshes_of_every_size())
    for (const Index accumulation : {1, 2, 3}) {
      TrainingRunSettings parts = whole;
      parts.accumulation = accumulation;
      if (parts.global_batch % (accumulation * shape.world()) != 0) continue;
      EXPECT_EQ(recorded_bytes(shape, 1, parts), alone) << name_of(shape) << ", " << accumulation;
    }
}

TEST(RoutingRecorder, FileSaysWhatTheRoutersDidWithWhichText) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  const auto path = folder.path() / "r";
  RecordedRun recorded(path, shape_of(1, world.size() == 3 ? 3 : world.size()), {});
  recorded.record(0, kSteps);
  world.barrier();
  const RoutingFile file(path);
  const RoutingHeading& heading = file.heading();
  EXPECT_EQ(heading.layers, (std::vector<Index>{0, 2})) << "layer 1 is dense";
  EXPECT_EQ(heading.experts, 4);
  EXPECT_EQ(heading.top_k, 2);
  EXPECT_EQ(heading.tokens, 12 * 24);
  ASSERT_EQ(std::ssize(file.steps()), kSteps);
  const Batch batch = recorded.run.sampler.train(kSteps - 1, 0, recorded.run.mesh.world().rank());
  std::size_t sparse = 0;
  for (const DecoderLayer& layer : recorded.run.decoder.layers()) {
    if (layer.moe() == nullptr) continue;
    const RecordedRouting all = file.read(kSteps - 1, static_cast<Index>(sparse++));
    const Routing& mine = layer.moe()->routing();
    const auto first = at(batch.first_token * heading.top_k);
    ASSERT_FALSE(mine.topk_idx.empty());
    for (std::size_t slot = 0; slot < mine.topk_idx.size(); ++slot) {
      EXPECT_EQ(all.topk_idx[first + slot], mine.topk_idx[slot]);
      EXPECT_NEAR(all.topk_weights[first + slot], mine.topk_weights[slot], 1.0 / 2048) << "fp16";
    }
  }
  std::vector<std::int32_t> text;
  for (int rank = 0; rank < world.size(); ++rank) {
    const Batch part = recorded.run.sampler.train(1, 0, rank);
    text.insert(text.end(), part.input_ids.begin(), part.input_ids.end());
  }
  EXPECT_EQ(file.steps()[1].text_hash, text_hash(text));
}

TEST(RoutingRecorder, RunThatGoesOnKeepsWhatCameBeforeAndDropsAnotherCourse) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  const MeshShape shape = shape_of(world.size(), 1);
  RecordedRun whole(folder.path() / "whole", shape, {});
  whole.record(0, 6);
  const auto path = folder.path() / "parts";
  RecordedRun parts(path, shape, {});
  parts.record(0, 4);  // as a checkpoint would be saved here; and two steps more, in the course that is left
  {
    RecordedRun again(path, shape, {});
    for (Index step = 0; step < 2; ++step) again.run.trainer.step(step);
    again.record(2, 4);
    again.record(4, 6);
  }
  world.barrier();
  EXPECT_EQ(read_bytes(path), read_bytes(folder.path() / "whole"));
}

TEST(RoutingRecorder, LeavesOutAStepThatTheRunLeavesOut) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  RecordedRun run(folder.path() / "r", shape_of(world.size(), 1), {});
  run.recorder->start();
  for (Index step = 0; step < 3; ++step) {
    run.run.trainer.step(step);
    run.recorder->end_step(step, /*left_out=*/step == 1);
  }
  world.barrier();
  const RoutingFile file(folder.path() / "r");
  ASSERT_EQ(file.steps().size(), 2u);
  EXPECT_EQ(file.steps()[1].number, 2);
}

TEST(RoutingRecorder, AllRanksAreToldOfAFileThatIsAnothersOrCannotBeWritten) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  const MeshShape shape = shape_of(world.size(), 1);
  const auto path = folder.path() / "r";
  RecordedRun(path, shape, {.experts = 5}).record(0, 1);
  RecordedRun run(path, shape, {});
  EXPECT_NE(message_of<AgreedError>([&] { run.recorder->start(1); }).find("another model, batch, seed"),
            std::string::npos);
  RecordedRun nowhere(folder.path() / "no" / "r", shape, {});
  EXPECT_NE(message_of<AgreedError>([&] { nowhere.recorder->start(); }).find("cannot create"),
            std::string::npos);
  RecordedRun gone(folder.path() / "gone", shape, {});
  gone.recorder->start();
  world.barrier();
  if (world.rank() == 0) std::filesystem::remove(folder.path() / "gone");
  gone.run.trainer.step(0);
  EXPECT_NE(message_of<AgreedError>([&] { gone.recorder->end_step(0, false); }).find("cannot open"),
            std::string::npos);
}

}  // namespace
}  // namespace moeloom
