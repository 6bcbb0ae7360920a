// Which of a run's checkpoints is found, and which are removed; the saving itself is checkpoint_test's.
#include "moeloom/base/errors.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using testing::names_in;

TEST(ResolveCheckpoint, SaysWhatItLookedFor) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "file", "x");
  const struct {
    fs::path path;
    std::string expected;
  } cases[] = {{folder / "absent", "no such run"},
               {folder / "file", "expected a folder"},
               {folder.path(), "neither a complete checkpoint-<step> nor config.json"}};
  for (const auto& c : cases) {
    try {
      resolve_checkpoint(c.path);
      FAIL() << c.path;
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find(c.expected), std::string::npos) << error.what();
    }
  }
}

/// checkpoint-<step> with every file's name and nothing in them.
void make_checkpoints(const fs::path& run, const std::vector<Index>& steps) {
  for (const Index step : steps) {
    const fs::path path = run / ("checkpoint-" + std::to_string(step));
    fs::create_directory(path);
    for (const char* file :
         {"config.json", "model.safetensors", "optimizer.safetensors", "trainer_state.json"})
      testing::write_bytes(path / file, "");
  }
}

TEST(OldCheckpoints, AreAllButTheNewestByNumber) {
  const testing::TemporaryFolder folder;
  make_checkpoints(folder.path(), {2, 10, 9, 100});
  fs::create_directory(folder / "checkpoint-last");
  EXPECT_TRUE(old_checkpoints(folder.path(), 0, 100).empty());
  EXPECT_TRUE(old_checkpoints(folder.path(), 4, 100).empty());
  remove_checkpoints(old_checkpoints(folder.path(), 2, 100));
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"checkpoint-10", "checkpoint-100", "checkpoint-last"}));
  EXPECT_TRUE(old_checkpoints(folder / "absent", 1, 1).empty());
}

TEST(OldCheckpoints, AreNeverTheOneJustWritten) {
  const testing::TemporaryFolder folder;
  make_checkpoints(folder.path(), {2, 3, 4, 6});
  remove_checkpoints(old_checkpoints(folder.path(), 2, 3));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"checkpoint-3", "checkpoint-6"}));
  remove_checkpoints(old_checkpoints(folder.path(), 1, 3));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"checkpoint-3"}));
}

TEST(RemoveCheckpointsAfter, LeavesTheStepAndWhatCameBefore) {
  const testing::TemporaryFolder folder;
  make_checkpoints(folder.path(), {2, 4, 10, 9});
  EXPECT_EQ(remove_checkpoints_after(folder.path(), 4),
            (std::vector<fs::path>{folder / "checkpoint-10", folder / "checkpoint-9"}));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"checkpoint-2", "checkpoint-4"}));
  EXPECT_TRUE(remove_checkpoints_after(folder.path(), 4).empty());
  EXPECT_TRUE(remove_checkpoints_after(folder / "absent", 0).empty());
}

TEST(SetAside, TakesTheNameOfACheckpointAndKeepsItsFiles) {
  const testing::TemporaryFolder folder;
  for (int i = 0; i < 2; ++i) {
    make_checkpoints(folder.path(), {2, 4});
    set_aside(folder / "checkpoint-4");
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"checkpoint-2", "damaged-checkpoint-4"}));
    EXPECT_FALSE(names_in(folder / "damaged-checkpoint-4").empty());
    EXPECT_TRUE(remove_checkpoints_after(folder.path(), 2).empty()) << "it is none any more";
  }
}

}  // namespace
}  // namespace moeloom
