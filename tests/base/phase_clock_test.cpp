#include "base/phase_clock.hpp"

#include <set>
#include <thread>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(PhaseClock, ChargesTimeToThePhaseThatWasCurrent) {
  PhaseClock clock;
  clock.enter(Phase::kAttention);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto begin = std::chrono::steady_clock::now();
  clock.enter(Phase::kLoss);
  const auto seconds = clock.take();
  const std::chrono::duration<double> of_loss = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(seconds[static_cast<std::size_t>(Phase::kAttention)], 0.02);
  EXPECT_LE(seconds[static_cast<std::size_t>(Phase::kLoss)], of_loss.count());
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

TEST(PhaseClock, RecordsWhatItChargesWithoutGapsOrOverlaps) {
  PhaseClock clock;
  std::vector<Span> spans;
  clock.record_into(&spans);
  clock.start();
  for (const Phase phase : {Phase::kRouter, Phase::kExperts, Phase::kRouter}) {
    clock.enter(phase);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::array<double, kPhases> recorded{};
  const auto seconds = clock.take();
  ASSERT_GE(spans.size(), 3u);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    for (std::size_t phase = 0; phase < kPhases; ++phase)
      if (spans[i].name == name_of(static_cast<Phase>(phase)))
        recorded[phase] += std::chrono::duration<double>(spans[i].end - spans[i].begin).count();
    EXPECT_EQ(spans[i].kind, SpanKind::kPhase);
    if (i > 0) {
      EXPECT_EQ(spans[i].begin, spans[i - 1].end);
    }
  }
  EXPECT_EQ(recorded, seconds);
}

TEST(PhaseClock, RecordsProductsInsideTheirPhaseAndOnlyWhenAsked) {
  PhaseClock clock;
  std::vector<Span> spans;
  int products = 0;
  clock.enter(Phase::kExperts);
  clock.product("before", 1, [&] { ++products; });
  clock.record_into(&spans);
  clock.product("down", 12, [&] { ++products; });
  clock.enter(Phase::kCombine);
  clock.record_into(nullptr);
  clock.product("after", 1, [&] { ++products; });
  clock.enter(Phase::kOther);
  EXPECT_EQ(products, 3);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].kind, SpanKind::kProduct);
  EXPECT_EQ(spans[0].name, "down");
  EXPECT_EQ(spans[0].number, 12);
  EXPECT_EQ(spans[1].name, "experts");
  EXPECT_LE(spans[1].begin, spans[0].begin);
  EXPECT_GE(spans[1].end, spans[0].end);
}

TEST(Phase, HasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kPhases; ++i) names.insert(name_of(static_cast<Phase>(i)));
  EXPECT_EQ(names.size(), kPhases);
  EXPECT_EQ(name_of(Phase::kOptimizer), "optimizer");
}

}  // namespace
}  // namespace moeloom
