#include "io/new_folder.hpp"

#include "moeloom/base/errors.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

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
    NewFolder made(folder);
    testing::write_bytes(partial_folder(folder) / "file", "x");
    EXPECT_FALSE(fs::exists(folder));
    made.publish();
    EXPECT_EQ(testing::read_bytes(folder / "file"), "x");
    EXPECT_FALSE(fs::exists(partial_folder(folder)));
  }
}

TEST(NewFolder, StartsEmptyAfterAKilledWriterAndTakesAnEmptyFoldersPlace) {
  const testing::TemporaryFolder parent;
  const fs::path folder = parent / "new";
  fs::create_directory(folder);
  fs::create_directory(partial_folder(folder));
  testing::write_bytes(partial_folder(folder) / "left", "x");
  NewFolder made(folder);
  EXPECT_TRUE(fs::is_empty(partial_folder(folder)));
  testing::write_bytes(partial_folder(folder) / "file", "x");
  made.publish();
  EXPECT_EQ(testing::names_in(folder), std::vector<std::string>{"file"});
}

TEST(NewFolder, ReplacesNothing) {
  const testing::TemporaryFolder parent;
  fs::create_directory(parent / "full");
  testing::write_bytes(parent / "full" / "file", "x");
  for (const fs::path& taken : {parent / "full", parent / "full" / "file"}) {
    const std::string text = testing::message_of<ConfigError>([&] { NewFolder made(taken); });
    EXPECT_NE(text.find("not an empty folder"), std::string::npos) << text;
    EXPECT_FALSE(fs::exists(partial_folder(taken)));
    EXPECT_EQ(testing::names_in(parent.path()), std::vector<std::string>{"full"}) << "also no lock";
  }
}

TEST(NewFolder, LeavesNothingWhenItIsDiscarded) {
  const testing::TemporaryFolder parent;
  { const NewFolder made(parent / "new"); }
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

TEST(NewFolder, HasOneWriterAtATime) {
  const testing::TemporaryFolder parent;
  NewFolder made(parent / "new");
  testing::write_bytes(partial_folder(parent / "new") / "file", "x");
  const std::string text = testing::message_of<ConfigError>([&] { NewFolder second(parent / "new/"); });
  EXPECT_NE(text.find("is being written by another process, process "), std::string::npos) << text;
  made.publish();
  EXPECT_EQ(testing::names_in(parent / "new"), std::vector<std::string>{"file"}) << "the second took nothing";
}

/// No rename replaces these; what was written for hours would be lost at the last call.
TEST(NewFolder, RefusesAtTheStartWhatItCannotReplaceAtTheEnd) {
  const testing::TemporaryFolder parent;
  fs::create_directory(parent / "empty");
  fs::create_directory_symlink("empty", parent / "link");
  fs::create_directory_symlink("absent", parent / "dangling");
  for (const auto& [name, said] :
       std::vector<std::pair<const char*, const char*>>{{"link", "is a link"},
                                                        {"link/", "is a link"},
                                                        {"dangling", "is a link"},
                                                        {"empty/.", "has no name"},
                                                        {"empty/..", "has no name"}}) {
    const std::string text = testing::message_of<ConfigError>([&] { NewFolder made(parent / name); });
    EXPECT_NE(text.find(said), std::string::npos) << name << ": " << text;
  }
  EXPECT_NE(testing::message_of<ConfigError>([] { NewFolder made(""); }).find("has no name"),
            std::string::npos);
  EXPECT_EQ(testing::names_in(parent.path()), (std::vector<std::string>{"dangling", "empty", "link"}));
}

TEST(NewFolder, WhatTheSystemDoesNotShowIsAnIoError) {
  const testing::TemporaryFolder parent;
  fs::create_symlink("loop", parent / "loop");
  const std::string text = testing::message_of<IoError>([&] { NewFolder made(parent / "loop" / "new"); });
  EXPECT_NE(text.find("Too many levels"), std::string::npos) << text;
}

/// In a namespace of its own, where it may mount: 0 is as it should be, 2 that it may not.
int exit_code_at_a_mount_point(const fs::path& folder) {
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 2;
  ::mount("none", "/", "none", MS_REC | MS_PRIVATE, nullptr);
  if (::mount(folder.c_str(), folder.c_str(), "none", MS_BIND, nullptr) != 0) return 2;
  try {
    const std::string text = testing::message_of<ConfigError>([&] { NewFolder made(folder); });
    return text.find("is a mount point") != std::string::npos ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

TEST(NewFolder, RefusesAMountPointAtTheStart) {
  const testing::TemporaryFolder parent;
  fs::create_directory(parent / "mounted");
  const pid_t child = ::fork();
  if (child == 0) ::_exit(exit_code_at_a_mount_point(parent / "mounted"));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) GTEST_SKIP() << "this machine lets nobody mount";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(testing::names_in(parent.path()), std::vector<std::string>{"mounted"});
}

}  // namespace
}  // namespace moeloom
