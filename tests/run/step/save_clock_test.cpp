#include "step/save_clock.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace std::chrono_literals;

TEST(SaveClock, IsDueSoManyMinutesAfterTheLastSaveAndUntilTheNext) {
  const SaveClock::Time start{};
  SaveClock clock(1.5, start);
  EXPECT_FALSE(clock.due(start));
  EXPECT_FALSE(clock.due(start + 89s));
  EXPECT_TRUE(clock.due(start + 90s));
  EXPECT_TRUE(clock.due(start + 200s));
  clock.restart(start + 200s);
  EXPECT_FALSE(clock.due(start + 289s));
  EXPECT_TRUE(clock.due(start + 290s));
}

TEST(SaveClock, IsNeverDueWithoutMinutes) {
  EXPECT_FALSE(SaveClock(0, {}).due(SaveClock::Time(24h)));
}

}  // namespace
}  // namespace moeloom
