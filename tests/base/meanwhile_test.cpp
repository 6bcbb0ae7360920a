#include "base/meanwhile.hpp"

#include "moeloom/base/parallel.hpp"

#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Meanwhile, NothingStandsWhereNobodyPutIt) {
  do_meanwhile();
}

TEST(Meanwhile, TheLatestAndThoseBeforeAreDoneWhileTheyLive) {
  std::string done;
  auto add_a = [&] { done += 'a'; };
  auto add_b = [&] { done += 'b'; };
  const Meanwhile a{Interlude(add_a)};
  {
    const Meanwhile b{Interlude(add_b)};
    do_meanwhile();
    EXPECT_EQ(done, "ba");
  }
  do_meanwhile();
  EXPECT_EQ(done, "baa");
}

TEST(Meanwhile, IsOfItsOwnThreadAlone) {
  int times = 0;
  auto count = [&] { ++times; };
  const Meanwhile counting{Interlude(count)};
  std::jthread(do_meanwhile).join();
  EXPECT_EQ(times, 0);
}

TEST(Meanwhile, ALoopInsideOfItDoesNothingMeanwhile) {
  int times = 0;
  auto loop = [&] {
    ++times;
    parallel_for(10, [](Index) {});
  };
  const Meanwhile looping{Interlude(loop)};
  do_meanwhile();
  EXPECT_EQ(times, 1);
  do_meanwhile();
  EXPECT_EQ(times, 2);
}

TEST(Meanwhile, AnExceptionOfItLeavesItStanding) {
  int times = 0;
  auto fail = [&] {
    ++times;
    throw std::runtime_error("link down");
  };
  const Meanwhile failing{Interlude(fail)};
  EXPECT_THROW(do_meanwhile(), std::runtime_error);
  EXPECT_THROW(do_meanwhile(), std::runtime_error);
  EXPECT_EQ(times, 2);
}

}  // namespace
}  // namespace moeloom
