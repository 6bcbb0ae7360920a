#include "base/interlude.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

struct Counted {
  int calls = 0;
  void count() { ++calls; }
};

TEST(Interlude, EmptyDoesNothing) {
  const Interlude nothing;
  EXPECT_NO_THROW(nothing());
}

TEST(Interlude, CallsTheWorkItself) {
  int calls = 0;
  auto work = [&calls] { ++calls; };
  const Interlude interlude(work);
  interlude();
  const Interlude copy = interlude;
  copy();
  EXPECT_EQ(calls, 2);
}

TEST(Interlude, CallsAMemberOfTheObjectAndNotOfACopy) {
  Counted counted;
  const Interlude interlude = Interlude::calling<&Counted::count>(counted);
  interlude();
  interlude();
  EXPECT_EQ(counted.calls, 2);
}

TEST(Interlude, WorkMayBeConst) {
  int calls = 0;
  const auto work = [&calls] { ++calls; };
  Interlude{work}();
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace moeloom
