#include "moeloom/base/phase_clock.hpp"

#include <set>
#include <thread>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(PhaseClock, ChargesTimeToThePhaseThatWasCurrent) {
  PhaseClock clock;
  clock.enter(Phase::kAttention);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  clock.enter(Phase::kLoss);
  const auto seconds = clock.take();
  EXPECT_GE(seconds[static_cast<std::size_t>(Phase::kAttention)], 0.02);
  EXPECT_LT(seconds[static_cast<std::size_t>(Phase::kLoss)], 0.02);
  EXPECT_EQ(clock.take()[static_cast<std::size_t>(Phase::kAttention)], 0.0);
}

TEST(Phase, HasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kPhases; ++i) names.insert(name_of(static_cast<Phase>(i)));
  EXPECT_EQ(names.size(), kPhases);
  EXPECT_EQ(name_of(Phase::kOptimizer), "optimizer");
}

}  // namespace
}  // namespace moeloom
