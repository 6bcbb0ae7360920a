#include "moeloom/base/parallel.hpp"

#include "base/meanwhile.hpp"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/program_region.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// Runs each test's body with 1 and with 3 threads, and puts the setting back.
class Parallel : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_threads(GetParam()); }
  void TearDown() override { set_threads(before_); }

 private:
  int before_ = threads();
};

TEST_P(Parallel, RunsEachTaskOnce) {
  for (const Index count : {Index{0}, Index{1}, Index{2}, Index{1000}}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
    parallel_for(count, [&](Index i) { ++runs[static_cast<std::size_t>(i)]; });
    for (const auto& times : runs) EXPECT_EQ(times, 1);
  }
}

TEST_P(Parallel, TheCallingThreadAloneDoesSomethingMeanwhile) {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> own_tasks = 0;
  int interludes = 0;
  auto work = [&] {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(++interludes, own_tasks);
  };
  const Meanwhile meanwhile{Interlude(work)};
  parallel_for(1000, [&](Index) { own_tasks += std::this_thread::get_id() == caller ? 1 : 0; });
  EXPECT_EQ(interludes, own_tasks);
}

TEST_P(Parallel, CutsBlocksThatDoNotDependOnTheThreads) {
  for (const Index count : {Index{0}, Index{1}, Index{4}, Index{10}}) {
    std::vector<std::atomic<Index>> ends(static_cast<std::size_t>(ceil_div(count, 4)));
    parallel_blocks(count, 4, [&](Index begin, Index end) {
      EXPECT_EQ(begin % 4, 0);
      ends[static_cast<std::size_t>(begin / 4)] = end;
    });
    for (std::size_t i = 0; i < ends.size(); ++i)
      EXPECT_EQ(ends[i], std::min<Index>(count, 4 * Index(i) + 4));
  }
}

TEST_P(Parallel, RethrowsATasksExceptionAndGoesOnWorking) {
  const auto failing = [](Index i) {
    if (i % 10 == 7) throw std::runtime_error("task failed");
  };
  EXPECT_THROW(parallel_for(100, failing), std::runtime_error);
  std::atomic<int> runs = 0;
  parallel_for(100, [&](Index) { ++runs; });
  EXPECT_EQ(runs, 100);
}

TEST_P(Parallel, RunsNestedLoopsOnTheCallingThread) {
  std::atomic<int> runs = 0;
  std::atomic<int> strangers = 0;
  parallel_for(8, [&](Index) {
    const int outer = thread_index();
    parallel_for(8, [&](Index) {
      ++runs;
      if (thread_index() != outer) ++strangers;
    });
  });
  EXPECT_EQ(runs, 64);
  EXPECT_EQ(strangers, 0);
}

TEST_P(Parallel, NumbersItsThreadsBelowTheirCount) {
  EXPECT_EQ(threads(), GetParam());
  EXPECT_EQ(thread_index(), 0);
  parallel_for(100, [](Index) {
    EXPECT_GE(thread_index(), 0);
    EXPECT_LT(thread_index(), GetParam());
  });
}

TEST_P(Parallel, CountsItsOwnThreadsInARegionOfTheProgram) {
  std::atomic<int> strangers = 0, runs = 0;
  testing::in_program_region(5, [&] {
    if (thread_index() != 0) ++strangers;
    parallel_for(10, [&](Index) {
      ++runs;
      if (thread_index() >= threads()) ++strangers;
    });
  });
  EXPECT_EQ(strangers, 0);
  EXPECT_EQ(runs, 50);
}

TEST_P(Parallel, HasAPlaceForEachOfItsThreadsInNestedLoops) {
  std::atomic<int> strangers = 0;
  parallel_for(8, [&](Index) {
    set_threads(1);  // of this thread's own loops, as OMP_NUM_THREADS=3,1 has it
    parallel_for(8, [&](Index) { strangers += thread_index() < threads() ? 0 : 1; });
    set_threads(GetParam());
  });
  EXPECT_EQ(strangers, 0);
}

TEST(Threads, AreAtLeastOne) {
  const int before = threads();
  set_threads(0);
  EXPECT_EQ(threads(), 1);
  set_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Threads, Parallel, ::testing::Values(1, 3));

}  // namespace
}  // namespace moeloom
