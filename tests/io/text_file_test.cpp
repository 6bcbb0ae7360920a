#include "io/text_file.hpp"

#include "moeloom/base/errors.hpp"

#include <sys/stat.h>

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

TEST(ReplaceFile, DoesNotFollowALinkOutOfTheFolder) {
  const TemporaryFolder folder, other;
  write_bytes(other / "precious", "kept");
  for (const char* target : {"precious", "made"}) {
    std::filesystem::create_symlink(other / target, folder / "a.conf.partial");
    EXPECT_NE(
        message_of<IoError>([&] { replace_file(folder / "a.conf", "new"); }).find("a link has this name"),
        std::string::npos);
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "a.conf.partial")) << "it is not ours to remove";
    std::filesystem::remove(folder / "a.conf.partial");
  }
  std::filesystem::create_directory(folder / "a.conf.partial");
  EXPECT_THROW(replace_file(folder / "a.conf", "new"), IoError);
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a.conf.partial"));
  EXPECT_EQ(read_bytes(other / "precious"), "kept");
  EXPECT_EQ(testing::names_in(other.path()), std::vector<std::string>{"precious"});
}

TEST(ReadTextFile, ReadsFilesAloneAndWaitsForNothing) {
  const TemporaryFolder folder;
  write_bytes(folder / "a", "text\n");
  std::filesystem::create_symlink("a", folder / "link");
  EXPECT_EQ(read_text_file(folder / "link"), "text\n");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::filesystem::path& path :
       {folder / "pipe", folder.path(), std::filesystem::path("/dev/zero")}) {
    EXPECT_NE(message_of<IoError>([&] { read_text_file(path); }).find("expected a"), std::string::npos)
        << path;
    EXPECT_NE(message_of<IoError>([&] { require_regular_file(path); }).find("expected a"), std::string::npos);
  }
}

TEST(FirstBytes, AreThoseOfAFileAndOfNothingElse) {
  const TemporaryFolder folder;
  write_bytes(folder / "a", "text");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(first_bytes(folder / "a", 2), "te");
  EXPECT_EQ(first_bytes(folder / "a", 9), "text");
  for (const char* other : {"pipe", "absent", "."}) EXPECT_EQ(first_bytes(folder / other, 9), "") << other;
}

TEST(EachLine, TellsWhatCannotBeFoundFromWhatIsNotThere) {
  const TemporaryFolder folder;
  const auto lines_of = [&](const char* name) {
    int lines = 0;
    each_line(folder / name, [&](const std::string&, bool) { ++lines; });
    return lines;
  };
  write_bytes(folder / "two", "a\nb");
  std::filesystem::create_symlink("itself", folder / "itself");
  EXPECT_EQ(lines_of("two"), 2);
  EXPECT_EQ(lines_of("absent"), 0);
  EXPECT_NE(message_of<IoError>([&] { lines_of("itself"); }).find("Too many levels"), std::string::npos);
}

TEST(ReplaceFile, SaysWhatStandsInTheWay) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of<IoError>([&] { replace_file(folder / "no" / "a", "x"); }).find("cannot create"),
            std::string::npos);
  std::filesystem::create_directories(folder / "taken" / "inner");
  EXPECT_NE(message_of<IoError>([&] { replace_file(folder / "taken", "x"); }).find("cannot rename"),
            std::string::npos);
}

}  // namespace
}  // namespace moeloom
