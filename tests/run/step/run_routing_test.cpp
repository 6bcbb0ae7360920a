#include "step/run_routing.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::pair<Index, Index> recorded(std::optional<StepRange> asked, StepRange run) {
  const StepRange range = recorded_range(asked, run);
  return {range.from, range.to};
}

TEST(RunRouting, RecordsTheLastTenStepsOrThoseOfTheRunThatAreAskedFor) {
  using Pair = std::pair<Index, Index>;
  EXPECT_EQ(recorded(std::nullopt, {0, 300}), (Pair{290, 300}));
  EXPECT_EQ(recorded(std::nullopt, {0, 4}), (Pair{0, 4}));
  EXPECT_EQ(recorded(std::nullopt, {295, 300}), (Pair{295, 300}))
      << "a run that goes on in the middle of them";
  EXPECT_EQ(recorded(StepRange{5, 8}, {0, 300}), (Pair{5, 8}));
  EXPECT_EQ(recorded(StepRange{5, 8}, {7, 300}), (Pair{7, 8}));
  const auto [from, to] = recorded(StepRange{5, 8}, {8, 300});
  EXPECT_GE(from, to) << "none is left";
}

}  // namespace
}  // namespace moeloom
