#include "train/checkpoint/background_save.hpp"

#include "train/checkpoint/verify.hpp"

#include "checkpoint/checkpoint_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using namespace testing;

void spoil(Trained& run) {
  visit_everything(run, [](const std::string&, Index, float& value) { value = -7; });
  for (auto& times : run.optimizer.times())
    for (Index& time : times) time = 0;
}

TEST(BackgroundSave, WritesTheBytesOfTheMomentItBeganWhateverTheStepsDo) {
  const Communicator world = Communicator::world();
  for (const MeshShape& shape : all_meshes(world.size()))
    for (const auto& [shard_bytes, masters] :
         {std::pair(kShardBytes, Storage::kFp32), {Index{2000}, Storage::kSplit}}) {
      const SharedFolder folder(world);
      Trained run(shape, {}, masters);
      fill_by_name(run);
      const fs::path sync = run.save(folder.path() / "sync", state_at(3), shard_bytes);
      BackgroundSave save(run.store, run.optimizer, run.mesh, run.config);
      save.reserve();
      for (const Index step : {3, 4}) {
        fill_by_name(run);
        save.begin({folder.path() / "async", shard_bytes}, state_at(step));
        EXPECT_TRUE(save.busy());
        spoil(run);
        EXPECT_EQ(save.finish(), folder.path() / "async" / ("checkpoint-" + std::to_string(step)));
        EXPECT_FALSE(save.busy());
      }
      const fs::path async = folder.path() / "async" / "checkpoint-3";
      world.barrier();
      ASSERT_EQ(names_in(async), names_in(sync));
      for (const std::string& name : names_in(sync))
        EXPECT_EQ(read_bytes(async / name), read_bytes(sync / name)) << name << " at " << shape.text();
      Trained again(shape);
      again.load(folder.path() / "async" / "checkpoint-4");
      EXPECT_EQ(differences(again), 0);
      world.barrier();
    }
}

TEST(BackgroundSave, GoesOnStageByStageWhenEveryRankIsDone) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained run(any_mesh());
  fill_by_name(run);
  BackgroundSave save(run.store, run.optimizer, run.mesh, run.config);
  save.reserve();
  save.begin({folder.path()}, state_at(1));
  Index stages = 0;
  for (std::optional<fs::path> path; !path; ++stages) {
    if (stages < 3) {
      EXPECT_TRUE(checkpoints_of(folder.path()).empty());  // in the last one it appears at any moment
    }
    while (!save.part_done()) {
    }
    world.barrier();
    path = save.advance();
  }
  EXPECT_EQ(stages, 4);
  EXPECT_TRUE(verify_folder(folder.path() / "checkpoint-1", world).whole());
}

TEST(BackgroundSave, ThatFailsOnOneRankLeavesThePreviousOneAndTheNextSucceeds) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained run(any_mesh());
  fill_by_name(run);
  BackgroundSave save(run.store, run.optimizer, run.mesh, run.config);
  save.reserve();
  save.begin({folder.path()}, state_at(1));
  save.finish();
  for (const int failing : {0, world.size() - 1}) {
    std::optional<FileSizeLimit> limit;
    if (world.rank() == failing) limit.emplace(1 << 16);
    save.begin({folder.path()}, state_at(2));
    std::string text;
    Cause cause = Cause::kRequest;
    try {
      save.finish();
    } catch (const Error& error) {
      text = error.what();
      cause = cause_of(error);
    }
    limit.reset();
    EXPECT_NE(text.find("File too large"), std::string::npos) << text;
    EXPECT_EQ(cause, Cause::kDisk);
    EXPECT_FALSE(save.busy());
    world.barrier();
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"checkpoint-1"}));
    world.barrier();
  }
  save.begin({folder.path()}, state_at(3));
  EXPECT_EQ(save.finish(), folder.path() / "checkpoint-3");
}

TEST(BackgroundSave, ThatIsLeftUnfinishedIsGivenUp) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained run(any_mesh());
  {
    BackgroundSave save(run.store, run.optimizer, run.mesh, run.config);
    save.reserve();
    save.begin({folder.path()}, state_at(1));
    save.advance();
    world.barrier();
  }
  world.barrier();
  EXPECT_TRUE(names_in(folder.path()).empty());
}

}  // namespace
}  // namespace moeloom
