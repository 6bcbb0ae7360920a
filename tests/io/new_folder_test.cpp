#include "io/new_folder.hpp"

#include "moeloom/base/errors.hpp"

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

TEST(NewFolder, AppearsWhenItIsPublishedAndNotBefore) {
  const testing::TemporaryFolder parent;
  for (const char* name : {"new", "slash/"}) {
    const fs::path folder = parent / name;
    begin_folder(folder);
    testing::write_bytes(partial_folder(folder) / "file", "x");
    EXPECT_FALSE(fs::exists(folder));
    publish_folder(folder);
    EXPECT_EQ(testing::read_bytes(folder / "file"), "x");
    EXPECT_FALSE(fs::exists(partial_folder(folder)));
  }
}

TEST(NewFolder, StartsEmptyAfterAKilledWriterAndTakesAnEmptyFoldersPlace) {
  const testing::TemporaryFolder parent;
  const fs::path folder = parent / "new";
  fs::create_directory(folder);
  begin_folder(folder);
  testing::write_bytes(partial_folder(folder) / "left", "x");
  begin_folder(folder);
  EXPECT_TRUE(fs::is_empty(partial_folder(folder)));
  publish_folder(folder);
  EXPECT_TRUE(fs::is_directory(folder));
}

TEST(NewFolder, ReplacesNothing) {
  const testing::TemporaryFolder parent;
  fs::create_directory(parent / "full");
  testing::write_bytes(parent / "full" / "file", "x");
  for (const fs::path& taken : {parent / "full", parent / "full" / "file"}) {
    const std::string text = testing::message_of<ConfigError>([&] { begin_folder(taken); });
    EXPECT_NE(text.find("not an empty folder"), std::string::npos) << text;
    EXPECT_FALSE(fs::exists(partial_folder(taken)));
  }
}

TEST(NewFolder, LeavesNothingWhenItIsDiscarded) {
  const testing::TemporaryFolder parent;
  begin_folder(parent / "new");
  discard_folder(parent / "new");
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

}  // namespace
}  // namespace moeloom
