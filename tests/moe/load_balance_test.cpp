#include "moe/load_balance.hpp"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(LoadBalance, TellsHowUnevenlyRowsLieOnExperts) {
  struct Case {
    std::vector<Index> rows;
    LoadBalance expected;
  };
  const std::vector<Case> cases = {
      {{}, {}},
      {{0, 0, 0}, {}},  // no token: that its experts were dead would be a rumour
      {{5}, {0, 1, 0, 0}},
      {{3, 3, 3, 3}, {0, 1, 0, 0}},
      {{0, 4, 4, 0}, {1, 2, 0.5, 2}},  // K = 2 of E = 4, every token the same two: the most is E / K
      {{0, 0, 0, 9}, {std::sqrt(3.0), 4, 0.75, 3}},
  };
  for (const Case& c : cases) {
    const LoadBalance balance = load_balance(c.rows);
    const std::string rows = ::testing::PrintToString(c.rows);
    EXPECT_DOUBLE_EQ(balance.cv, c.expected.cv) << rows;
    EXPECT_DOUBLE_EQ(balance.fullest_over_mean, c.expected.fullest_over_mean) << rows;
    EXPECT_DOUBLE_EQ(balance.gini, c.expected.gini) << rows;
    EXPECT_EQ(balance.dead_experts, c.expected.dead_experts) << rows;
  }
}

}  // namespace
}  // namespace moeloom
