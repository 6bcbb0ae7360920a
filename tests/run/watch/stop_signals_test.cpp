#include "moeloom/run/stop_signals.hpp"

#include <csignal>
#include <future>
#include <sys/syscall.h>
#include <sys/wait.h>
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

/// To the first thread, where it waits at once; to the process, another thread may have to pass it on.
void send_to_first_thread(int signal) {
  syscall(SYS_tgkill, getpid(), getpid(), signal);
}

TEST_F(StopSignalsTest, WaitUntilTheyAreTakenAndComeOnce) {
  StopSignals signals;
  EXPECT_EQ(signals.take(), 0);
  for (const int signal : {SIGTERM, SIGUSR1}) {
    send_to_first_thread(signal);
    EXPECT_EQ(signals.take(), signal);
    EXPECT_EQ(signals.take(), 0);
  }
}

TEST_F(StopSignalsTest, OfTheProcessArriveWhicheverThreadTheyMeet) {
  StopSignals signals;
  for (const int signal : {SIGTERM, SIGUSR1}) {
    kill(getpid(), signal);
    int taken = 0;
    for (int i = 0; i < 5000 && (taken = signals.take()) == 0; ++i) usleep(1000);
    EXPECT_EQ(taken, signal);
  }
}

TEST_F(StopSignalsTest, OfTwoOfAKindOneIsKept) {
  StopSignals signals;
  send_to_first_thread(SIGTERM);
  send_to_first_thread(SIGTERM);
  EXPECT_EQ(signals.take(), SIGTERM);
  EXPECT_EQ(signals.take(), 0);
}

TEST_F(StopSignalsTest, SpareAThreadThatWasStartedLater) {
  StopSignals signals;
  std::thread([] { send_to_first_thread(SIGUSR1); }).join();
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
  send_to_first_thread(SIGUSR1);
  EXPECT_EQ(StopSignals().take(), SIGUSR1);
}

/// A child that interrupts itself so often -> its exit code; what it took, if it came to that.
int exit_code_of_a_process_interrupted(int times) {
  const pid_t child = fork();
  if (child == 0) {
    StopSignals signals;
    for (int i = 0; i < times; ++i) raise(SIGINT);
    _exit(signals.take());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(StopSignalsTest, TheFirstInterruptWaitsAndTheSecondLeavesAtOnce) {
  EXPECT_EQ(exit_code_of_a_process_interrupted(0), 0);
  EXPECT_EQ(exit_code_of_a_process_interrupted(1), SIGINT) << "taken";
  EXPECT_EQ(exit_code_of_a_process_interrupted(2), 130);
}

TEST(SignalName, IsTheOneThatPeopleType) {
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(SIGUSR1), "SIGUSR1");
  EXPECT_EQ(signal_name(SIGINT), "SIGINT");
}

}  // namespace
}  // namespace moeloom
