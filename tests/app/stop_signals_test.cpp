#include "moeloom/app/stop_signals.hpp"

#include <csignal>
#include <future>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// The programs that other tests start would inherit what is held here.
class StopSignalsTest : public ::testing::Test {
 protected:
  void SetUp() override { pthread_sigmask(SIG_SETMASK, nullptr, &before_); }
  void TearDown() override { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

TEST_F(StopSignalsTest, WaitUntilTheyAreTakenAndComeOnce) {
  StopSignals signals;
  EXPECT_EQ(signals.take(), 0);
  for (const int signal : {SIGTERM, SIGUSR1}) {
    kill(getpid(), signal);
    EXPECT_EQ(signals.take(), signal);
    EXPECT_EQ(signals.take(), 0);
  }
}

TEST_F(StopSignalsTest, OfTwoOfAKindOneIsKept) {
  StopSignals signals;
  kill(getpid(), SIGTERM);
  kill(getpid(), SIGTERM);
  EXPECT_EQ(signals.take(), SIGTERM);
  EXPECT_EQ(signals.take(), 0);
}

TEST_F(StopSignalsTest, SpareAThreadThatWasStartedLater) {
  StopSignals signals;
  std::thread([] { kill(getpid(), SIGUSR1); }).join();
  EXPECT_EQ(signals.take(), SIGUSR1);
}

/// As OpenBLAS's, which are there before main.
TEST_F(StopSignalsTest, SpareAThreadThatWasStartedEarlier) {
  std::promise<void> held;
  std::thread earlier([&held] {
    held.get_future().wait();
    syscall(SYS_tgkill, getpid(), gettid(), SIGTERM);
  });
  StopSignals signals;
  held.set_value();
  earlier.join();
  EXPECT_EQ(signals.take(), SIGTERM);
}

TEST_F(StopSignalsTest, ThatCameBeforeAreNotLost) {
  hold_stop_signals();
  kill(getpid(), SIGUSR1);
  EXPECT_EQ(StopSignals().take(), SIGUSR1);
}

TEST(SignalName, IsTheOneThatPeopleType) {
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(SIGUSR1), "SIGUSR1");
}

}  // namespace
}  // namespace moeloom
