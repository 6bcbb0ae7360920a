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

TEST(PhaseClock, StartsAfterWhatWentBefore) {
  PhaseClock clock;
  clock.enter(Phase::kAttention);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto begin = std::chrono::steady_clock::now();
  clock.start();
  double sum = 0;
  for (const double seconds : clock.take()) sum += seconds;
  EXPECT_LE(sum, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

TEST(Phase, HasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kPhases; ++i) names.insert(name_of(static_cast<Phase>(i)));
  EXPECT_EQ(names.size(), kPhases);
  EXPECT_EQ(name_of(Phase::kOptimizer), "optimizer");
}

}  // namespace
}  // namespace moeloom
