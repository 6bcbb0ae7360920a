#include "step/pruning.hpp"

#include "train/checkpoint/checkpoint.hpp"

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

void make_checkpoint(const fs::path& run, int step) {
  const fs::path folder = run / ("checkpoint-" + std::to_string(step));
  fs::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors", "optimizer.safetensors", "trainer_state.json"})
    testing::write_bytes(folder / file, "");
}

TEST(Pruning, RemovesWhatIsOldWhenItsEndIsWaitedFor) {
  const testing::TemporaryFolder run;
  for (const int step : {1, 2, 3}) make_checkpoint(run.path(), step);
  Pruning pruning;
  EXPECT_EQ(pruning.finish(), "") << "none is under way";
  pruning.begin(run.path(), 2, 3);
  EXPECT_EQ(pruning.finish(), "");
  EXPECT_FALSE(fs::exists(run / "checkpoint-1"));
  EXPECT_TRUE(fs::exists(run / "checkpoint-2") && fs::exists(run / "checkpoint-3"));
  EXPECT_EQ(pruning.finish(), "") << "it was told";
}

TEST(Pruning, LeavesWhatIsWrittenWhileItIsUnderWay) {
  for (int time = 0; time < 50; ++time) {
    const testing::TemporaryFolder run;
    for (const int step : {1, 2}) make_checkpoint(run.path(), step);
    Pruning pruning;
    pruning.begin(run.path(), 1, 2);
    make_checkpoint(run.path(), 3);
    EXPECT_EQ(pruning.finish(), "");
    EXPECT_FALSE(fs::exists(run / "checkpoint-1"));
    ASSERT_TRUE(fs::exists(run / "checkpoint-2") && fs::exists(run / "checkpoint-3")) << time;
  }
}

}  // namespace
}  // namespace moeloom
