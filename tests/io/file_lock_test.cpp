#include "io/file_lock.hpp"

#include "moeloom/base/errors.hpp"

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::TemporaryFolder;

TEST(FileLock, IsHeldOnceAndGivenBack) {
  const TemporaryFolder folder;
  const auto path = folder / "lock";
  {
    std::optional<FileLock> lock = FileLock::take(path);
    ASSERT_TRUE(lock && lock->held());
    EXPECT_EQ(lock->left(), "");
    lock->say("the first holder");
    lock->say("me");
    EXPECT_FALSE(FileLock::take(path));
    EXPECT_EQ(said_in(path), "me") << "one that was refused changes nothing";
  }
  const std::optional<FileLock> again = FileLock::take(path);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->left(), "") << "it was given back in order";
}

TEST(FileLock, OfAKilledProcessIsFreeAndTellsWhoHadIt) {
  const TemporaryFolder folder;
  const auto path = folder / "lock";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::optional<FileLock> lock = FileLock::take(path);
    lock->say("the child");
    (void)!write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(FileLock::take(path));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const std::optional<FileLock> lock = FileLock::take(path);
  ASSERT_TRUE(lock);
  EXPECT_EQ(lock->left(), "the child");
  close(ready[0]);
  close(ready[1]);
}

TEST(FileLock, NamesAFileThatCannotBeMade) {
  const TemporaryFolder folder;
  const std::string message =
      testing::message_of<IoError>([&] { FileLock::take(folder / "absent" / "lock"); });
  EXPECT_NE(message.find("absent/lock: No such file"), std::string::npos) << message;
  EXPECT_EQ(said_in(folder / "absent"), "");
}

}  // namespace
}  // namespace moeloom
