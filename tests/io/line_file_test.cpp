#include "io/line_file.hpp"

#include "moeloom/base/errors.hpp"

#include <optional>

#include "support/expect_error.hpp"
#include "support/file_size_limit.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::FileSizeLimit;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

TEST(LineFile, AddsToWhatIsThere) {
  const TemporaryFolder folder;
  write_bytes(folder / "lines", "old\n");
  LineFile file(folder / "lines");
  EXPECT_EQ(file.append("new"), "");
  EXPECT_EQ(file.append("newer"), "");
  EXPECT_EQ(read_bytes(folder / "lines"), "old\nnew\nnewer\n");
}

TEST(LineFile, KeepsLinesWhileTheDiskIsFullAndWritesThemWhenItIsNot) {
  const TemporaryFolder folder;
  LineFile file(folder / "lines");
  EXPECT_EQ(file.append("first"), "");
  {
    const FileSizeLimit limit(9);
    EXPECT_EQ(file.append("second"), "cannot write to " + (folder / "lines").string() + ": File too large");
    EXPECT_EQ(read_bytes(folder / "lines"), "first\n") << "no part of a line";
    EXPECT_NE(file.append("third"), "");
    EXPECT_EQ(file.waiting_lines(), 2);
  }
  EXPECT_EQ(file.append("fourth"), "");
  EXPECT_EQ(read_bytes(folder / "lines"), "first\nsecond\nthird\nfourth\n");
  EXPECT_EQ(file.waiting_lines() + file.lost_lines(), 0);
}

TEST(LineFile, GoesOnBehindWhatSomebodyElseLeft) {
  const TemporaryFolder folder;
  LineFile file(folder / "lines");
  EXPECT_EQ(file.append("first"), "");
  std::filesystem::resize_file(folder / "lines", 0);
  EXPECT_EQ(file.append("second"), "");
  EXPECT_EQ(read_bytes(folder / "lines"), "second\n");
}

TEST(LineFile, LosesTheOldestOfTooMany) {
  const TemporaryFolder folder;
  LineFile file(folder / "lines");
  const std::string line(1 << 20, 'x');
  std::optional<FileSizeLimit> limit(100);
  for (int i = 0; i < 70; ++i) EXPECT_NE(file.append(line), "");
  EXPECT_GT(file.lost_lines(), 20);
  EXPECT_EQ(file.lost_lines() + file.waiting_lines(), 70);
  limit.reset();
  const Index lost = file.lost_lines();
  EXPECT_EQ(file.append(line), "");
  EXPECT_EQ(static_cast<Index>(read_bytes(folder / "lines").size()), (71 - lost) * ((1 << 20) + 1));
}

TEST(LineFile, IsMadeAnewWhereItsFolderIsBack) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "run");
  LineFile file(folder / "run" / "lines");
  EXPECT_EQ(file.append("first"), "");
  std::filesystem::remove_all(folder / "run");
  EXPECT_NE(file.append("second").find("No such file"), std::string::npos);
  std::filesystem::create_directory(folder / "run");
  EXPECT_EQ(file.append("third"), "");
  EXPECT_EQ(read_bytes(folder / "run" / "lines"), "second\nthird\n");
}

TEST(LineFile, IsNotMadeOnAnotherFileSystem) {
  const TemporaryFolder folder;
  if (file_system_of("/dev/shm") == file_system_of(folder.path())) GTEST_SKIP() << "one file system for both";
  std::filesystem::create_directory(folder / "run");
  LineFile file(folder / "run" / "lines");
  std::filesystem::rename(folder / "run", folder / "was");
  std::filesystem::create_directory_symlink("/dev/shm", folder / "run");
  const std::string said = file.append("x");
  EXPECT_NE(said.find("a mount is gone"), std::string::npos) << said;
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/lines"));
}

TEST(FileSystemOf, IsThatOfTheNearestFolder) {
  const TemporaryFolder folder;
  EXPECT_EQ(file_system_of(folder / "not" / "there"), file_system_of(folder.path()));
}

}  // namespace
}  // namespace moeloom
