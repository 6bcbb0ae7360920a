#include "open/run_lock.hpp"

#include "moeloom/base/errors.hpp"

#include <thread>
#include <unistd.h>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(RunLock, RefusesASecondJobAndNamesTheFirst) {
  const testing::TemporaryFolder run;
  std::optional<RunLock> first(run.path());
  EXPECT_FALSE(first->warning());
  const std::string message = testing::message_of<ConfigError>([&] { RunLock second(run.path(), {}); });
  EXPECT_NE(message.find(run.path().string() + " is in use by another job: process " +
                         std::to_string(getpid()) + " on host "),
            std::string::npos)
      << message;
  EXPECT_NE(message.find(" since 20"), std::string::npos) << message;
  first.reset();
  EXPECT_FALSE(RunLock(run.path()).warning());
}

TEST(RunLock, WaitsForAJobThatIsEnding) {
  const testing::TemporaryFolder run;
  std::optional<RunLock> first(run.path());
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    first.reset();
  });
  EXPECT_NO_THROW(RunLock second(run.path()));
  ending.join();
}

TEST(RunLock, TakesOverThatOfADeadJobAndSaysWhose) {
  const testing::TemporaryFolder run;
  testing::write_bytes(run / "run.lock", R"({"host":"node3","pid":4711,"since":"2026-11-22 10:00:00 UTC"})");
  const std::optional<Event> warning = RunLock(run.path()).warning();
  ASSERT_TRUE(warning);
  EXPECT_EQ(
      warning->text(),
      "lock=\"taken over\" reason=\"process 4711 on host node3 since 2026-11-22 10:00:00 UTC is gone\"");
  testing::write_bytes(run / "run.lock", "what a full disk left");
  EXPECT_NE(RunLock(run.path()).warning()->text().find("does not say"), std::string::npos);
}

}  // namespace
}  // namespace moeloom
