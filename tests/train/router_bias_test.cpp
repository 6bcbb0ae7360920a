#include "train/router_bias.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(RouterBias, GoesUpWhereAnExpertIsChosenTooRarely) {
  std::vector<float> bias = {0, 0, 0, 0.5f};
  const std::vector<std::int64_t> chosen = {9, 1, 5, 5};  // mean 5
  move_router_bias(chosen, 0.25, bias);
  EXPECT_EQ(bias, (std::vector<float>{-0.25f, 0.25f, 0, 0.5f}));
}

TEST(RouterBias, ComparesInIntegersWhatDoublesWouldRound) {
  // 2^53 + 1 is no double: the mean of these is what the second has.
  std::vector<float> bias = {0, 0, 0};
  const std::int64_t many = (std::int64_t{1} << 53) + 1;
  move_router_bias(std::vector<std::int64_t>{many - 1, many, many + 1}, 1, bias);
  EXPECT_EQ(bias, (std::vector<float>{1, 0, -1}));
}

TEST(RouterBias, StaysWhereNothingWasChosen) {
  std::vector<float> bias = {0.25f, -1};
  move_router_bias(std::vector<std::int64_t>{0, 0}, 1, bias);
  EXPECT_EQ(bias, (std::vector<float>{0.25f, -1}));
}

}  // namespace
}  // namespace moeloom
