#include "moeloom/io/text_file.hpp"

#include "moeloom/base/errors.hpp"

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::message_of;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

TEST(ReplaceFile, WritesTheWholeTextAndLeavesNothingBeside) {
  const TemporaryFolder folder;
  for (const char* text : {"first and long\n", "second\n", ""}) {
    replace_file(folder / "a.conf", text);
    EXPECT_EQ(read_bytes(folder / "a.conf"), text);
    EXPECT_FALSE(std::filesystem::exists(folder / "a.conf.partial"));
  }
}

TEST(ReplaceFile, OnAFullDiskTheOldFileStays) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.conf", "old");
  std::filesystem::create_symlink("/dev/full", folder / "a.conf.partial");
  EXPECT_NE(message_of<IoError>([&] { replace_file(folder / "a.conf", "new"); }).find("No space left"),
            std::string::npos);
  EXPECT_EQ(read_bytes(folder / "a.conf"), "old");
}

TEST(ReplaceFile, SaysWhatStandsInTheWay) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of<IoError>([&] { replace_file(folder / "no" / "a", "x"); }).find("cannot create"),
            std::string::npos);
  std::filesystem::create_directories(folder / "taken" / "inner");
  EXPECT_NE(message_of<IoError>([&] { replace_file(folder / "taken", "x"); }).find("cannot replace"),
            std::string::npos);
}

}  // namespace
}  // namespace moeloom
