// gtest on every rank: all ranks run the same tests in the same order, rank 0 tells the story, the other
// ranks speak only of their failures, and the verdict is everyone's.
//
// A rank that leaves a test early would keep the others waiting in a collective for ever. So the ranks meet
// after every test on a communicator of their own, and a watchdog ends the job if a rank failed and the
// meeting does not come about, or if the whole program takes too long.
#include "moeloom/comm/communicator.hpp"
#include "moeloom/comm/session.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/sanitized.hpp"
#include <gtest/gtest.h>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Below ctest's timeout, so that the test's name gets out.
constexpr auto kWholeProgram = moeloom::testing::kSanitized ? 3500s : 550s;
constexpr auto kAfterFailure = moeloom::testing::kSanitized ? 180s : 60s;

std::string name_of(const testing::TestInfo& test) {
  return std::string(test.test_suite_name()) + "." + test.name();
}

/// Ends the process, and with it the job, at a deadline that can be moved. _Exit rather than MPI_Abort: the
/// main thread may be inside MPI; mpirun ends the other ranks.
class Watchdog {
 public:
  explicit Watchdog(int rank) : rank_(rank), thread_([this](std::stop_token stop) { watch(stop); }) {}

  void test_starts(const std::string& name) {
    const std::lock_guard lock(mutex_);
    test_ = name;
  }
  void a_check_failed() { move_to(std::min(program_end_, Clock::now() + kAfterFailure)); }
  void ranks_have_met() { move_to(program_end_); }

 private:
  void move_to(Clock::time_point deadline) {
    const std::lock_guard lock(mutex_);
    deadline_ = deadline;
    moved_.notify_all();
  }

  void watch(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      const Clock::time_point deadline = deadline_;
      moved_.wait_until(lock, stop, deadline, [&] { return deadline_ != deadline; });
      if (!stop.stop_requested() && deadline_ == deadline) bark();
    }
  }

  [[noreturn]] void bark() const {
    const char* reason = deadline_ == program_end_ ? "the tests take too long"
                                                   : "it failed here and another rank does not reach its end";
    std::fprintf(stderr, "rank %d: stopped in %s: %s\n", rank_, test_.c_str(), reason);
    std::fflush(nullptr);
    std::_Exit(EXIT_FAILURE);
  }

  int rank_;
  std::string test_ = "(before the first test)";
  std::mutex mutex_;
  std::condition_variable_any moved_;
  Clock::time_point program_end_ = Clock::now() + kWholeProgram;
  Clock::time_point deadline_ = program_end_;
  std::jthread thread_;
};

/// Meets the other ranks after every test and keeps the tests that failed on any of them.
class Meeting : public testing::EmptyTestEventListener {
 public:
  Meeting(const moeloom::Communicator& ranks, Watchdog& watchdog, std::vector<std::string>& failures)
      : ranks_(ranks), watchdog_(watchdog), failures_(failures) {}

  // Kept here, because gtest holds its lock while it reports a result and would not answer.
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = name_of(test);
    watchdog_.test_starts(test_);
  }

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    watchdog_.a_check_failed();
    if (ranks_.rank() == 0) return;  // its own printer reports it
    const char* file = result.file_name() == nullptr ? "unknown file" : result.file_name();
    std::fprintf(stderr, "rank %d: %s\n%s:%d: Failure\n%s\n", ranks_.rank(), test_.c_str(), file,
                 result.line_number(), result.message());
  }

  void OnTestEnd(const testing::TestInfo& test) override {
    const double failed_here = test.result()->Failed() ? 1.0 : 0.0;
    const std::vector<double> failed = ranks_.all_gather(std::span(&failed_here, 1));
    std::string who;
    for (std::size_t rank = 0; rank < failed.size(); ++rank)
      if (failed[rank] != 0) who += ' ' + std::to_string(rank);
    if (!who.empty()) failures_.push_back(test_ + " on rank" + who);
    watchdog_.ranks_have_met();
  }

 private:
  const moeloom::Communicator& ranks_;
  Watchdog& watchdog_;
  std::vector<std::string>& failures_;
  std::string test_ = "(outside a test)";
};

void print_summary(int ranks, const std::vector<std::string>& failures) {
  const int tests = testing::UnitTest::GetInstance()->test_to_run_count();
  std::printf("[==========] %d tests on %d ranks: %zu failed on some rank.\n", tests, ranks, failures.size());
  for (const std::string& failure : failures) std::printf("[  FAILED  ] %s\n", failure.c_str());
}

int run_on_all_ranks() {
  const moeloom::Communicator ranks =
      moeloom::Communicator::world().split(0, moeloom::Communicator::world().rank());
  std::vector<std::string> failures;
  Watchdog watchdog(ranks.rank());
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (ranks.rank() != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Meeting(ranks, watchdog, failures));  // gtest deletes its listeners
  const double verdict = ranks.all_max(RUN_ALL_TESTS());
  if (ranks.rank() == 0) print_summary(ranks.size(), failures);
  return verdict == 0 && failures.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  moeloom::Session session(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(shuffle, false);  // the ranks would shuffle differently
  try {
    return run_on_all_ranks();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", moeloom::Communicator::world().rank(), error.what());
    moeloom::abort_all_ranks(EXIT_FAILURE);
    return EXIT_FAILURE;
  }
}
