#include "moeloom/base/progress_thread.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/meanwhile.hpp"
#include "moeloom/base/parallel.hpp"

#include <atomic>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <system_error>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace std::chrono_literals;

/// One thread: GCC's thread sanitizer does not see how OpenMP's order each other.
class ProgressThreads : public ::testing::Test {
 protected:
  ProgressThreads() { set_threads(1); }
  ~ProgressThreads() override { set_threads(before_); }

 private:
  int before_ = threads();
};

/// A task without an end of its own.
template <typename Condition>
void compute_until(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!condition() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

/// Counts in a plain number, as works do that know of no other thread.
struct Counting {
  int times = 0, by_maker = 0;
  std::atomic<int> seen{0};
  std::thread::id maker = std::this_thread::get_id();
  void operator()() {
    if (std::this_thread::get_id() == maker) ++by_maker;
    seen = ++times;
  }
};

TEST_F(ProgressThreads, DoesWhatStandsInTheMiddleOfATask) {
  const ProgressThread helper({});
  Counting counting;
  const Meanwhile standing{Interlude(counting)};
  parallel_for(1, [&](Index) { compute_until([&] { return counting.seen >= 3; }); });
  EXPECT_GE(counting.times - counting.by_maker, 3);
  EXPECT_GE(helper.looks(), 3);
}

TEST_F(ProgressThreads, DoesAllThatStandsTheLatestFirst) {
  const ProgressThread helper({});
  std::string done;
  auto add_a = [&] { done += 'a'; };
  auto add_b = [&] { done += 'b'; };
  const Meanwhile a{Interlude(add_a)};
  Counting counting;  // done last
  {
    const Meanwhile b{Interlude(add_b)};
    const Meanwhile c{Interlude(counting)};
    as_task([&] { compute_until([&] { return counting.seen >= 2; }); });
  }
  EXPECT_EQ(done.substr(0, 2), "ba");
  done.clear();
  const int times = counting.times;
  do_meanwhile();
  EXPECT_EQ(done, "a");
  EXPECT_EQ(counting.times, times);
}

/// Between two loops the thread that computes touches what works touch; the sanitizer looks on.
TEST_F(ProgressThreads, HasTheTurnInLoopsAlone) {
  const ProgressThread helper({.between_looks = 1us});
  Counting counting;
  int before = 0;
  const Meanwhile standing{Interlude(counting)};
  for (int round = 0; round < 20; ++round) {
    parallel_for(3, [&](Index) { std::this_thread::sleep_for(100us); });
    before = counting.times++;
    std::this_thread::sleep_for(500us);
    EXPECT_EQ(counting.times, before + 1);
  }
  EXPECT_GT(helper.looks(), 0);
}

TEST_F(ProgressThreads, LeavesTheTurnAtTheEndOfTheOutermostLoop) {
  const ProgressThread helper({});
  Counting counting;
  const Meanwhile standing{Interlude(counting)};
  parallel_for(2, [&](Index) {
    parallel_for(2, [](Index) {});
    const int before = counting.seen;
    compute_until([&] { return counting.seen > before + 1; });
  });
  const int times = counting.times;
  std::this_thread::sleep_for(2ms);
  EXPECT_EQ(counting.times, times);
}

TEST_F(ProgressThreads, GivesTheExceptionOfAWorkToTheLoop) {
  const ProgressThread helper({});
  std::atomic<bool> thrown = false;
  int times = 0;
  auto fail = [&] {
    ++times;
    thrown = true;
    throw std::runtime_error("link down");
  };
  const Meanwhile failing{Interlude(fail)};
  for (int round = 1; round <= 2; ++round) {
    thrown = false;
    EXPECT_THROW(parallel_for(1, [&](Index) { compute_until([&] { return thrown.load(); }); }),
                 std::runtime_error);
  }
  EXPECT_GE(times, 2);
}

TEST_F(ProgressThreads, EndsWithAnExceptionThatNobodyTook) {
  std::atomic<bool> thrown = false;
  auto fail = [&] {
    thrown = true;
    throw std::runtime_error("link down");
  };
  const ProgressThread helper({});
  const Meanwhile failing{Interlude(fail)};
  struct OfATask {};
  EXPECT_THROW(parallel_for(1,
                            [&](Index) {
                              compute_until([&] { return thrown.load(); });
                              throw OfATask();
                            }),
               OfATask);
}

TEST_F(ProgressThreads, HasNoTurnAfterTheExceptionOfATask) {
  const ProgressThread helper({});
  Counting counting;
  const Meanwhile standing{Interlude(counting)};
  EXPECT_THROW(parallel_for(3,
                            [&](Index) {
                              compute_until([&] { return counting.seen >= 1; });
                              throw std::runtime_error("of a task");
                            }),
               std::runtime_error);
  const int times = counting.times;
  std::this_thread::sleep_for(2ms);
  EXPECT_EQ(counting.times, times);
  as_task([&] { compute_until([&] { return counting.seen > times; }); });
  EXPECT_GT(counting.times, times);
}

TEST_F(ProgressThreads, IsReplacedByTheComputingThreadWhereItComesLate) {
  const ProgressThread helper({.between_looks = 1h});
  Counting counting;
  const Meanwhile standing{Interlude(counting)};
  parallel_for(5, [&](Index) { std::this_thread::sleep_for(2ms); });
  EXPECT_GE(counting.by_maker, 3);
}

TEST_F(ProgressThreads, RunsLoopsOfAWorkAlone) {
  set_threads(2);
  const ProgressThread helper({});
  const std::thread::id maker = std::this_thread::get_id();
  std::atomic<int> its_threads = 0;
  int sum = 0;
  auto loop = [&] {
    if (std::this_thread::get_id() == maker) return;  // which may help out
    parallel_for(10, [&](Index i) { sum += static_cast<int>(i); });
    its_threads = threads();
  };
  const Meanwhile looping{Interlude(loop)};
  as_task([&] { compute_until([&] { return its_threads > 0; }); });
  EXPECT_EQ(its_threads, 1);
  EXPECT_EQ(sum % 45, 0);
  EXPECT_EQ(threads(), 2);
}

TEST_F(ProgressThreads, RunsWhereItIsBound) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(static_cast<std::size_t>(last), &mine)) --last;
  const ProgressThread helper({.processor = last});
  std::atomic<int> runs_on = -1;
  auto ask = [&] { runs_on = sched_getcpu(); };
  const Meanwhile asking{Interlude(ask)};
  as_task([&] { compute_until([&] { return runs_on >= 0; }); });
  EXPECT_EQ(runs_on, last);
}

TEST_F(ProgressThreads, RefusesAProcessorThatIsNotThereAndASecondOfItself) {
  for (const int processor : {-1, CPU_SETSIZE - 1, CPU_SETSIZE})
    EXPECT_THROW(ProgressThread({.processor = processor}), std::system_error) << processor;
  const ProgressThread helper({});
  EXPECT_THROW(ProgressThread({}), ShapeError);
}

}  // namespace
}  // namespace moeloom
