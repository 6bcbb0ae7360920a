#include "moe/routing/router_statistics.hpp"

#include "moeloom/base/parallel.hpp"

#include <limits>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kTokens = 1100, kExperts = 331;  // several tasks of tokens and of experts, none of them whole

Routing routed(RouterScore score) {
  RouterSettings settings = softmax_router(kExperts, 3);
  settings.score = score;
  Routing routing;
  route(testing::random_matrix(kTokens, kExperts, 4), settings, routing);
  routing.kept_idx = routing.topk_idx;
  for (std::size_t slot = 2; slot < routing.kept_idx.size(); slot += 5) routing.kept_idx[slot] = kNoExpert;
  return routing;
}

std::vector<std::uint8_t> every_third_is_padding() {
  std::vector<std::uint8_t> is_real(at(kTokens), 1);
  for (std::size_t t = 0; t < is_real.size(); t += 3) is_real[t] = 0;
  return is_real;
}

TEST(RouterStatistics, AreSumsOverTheTokensThatCount) {
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    Routing routing = routed(score);
    const std::vector<std::uint8_t> is_real = every_third_is_padding();
    routing.scores.row(3)[5] = std::numeric_limits<float>::quiet_NaN();  // of a row of padding
    RouterStatistics statistics(2, kExperts);
    statistics.add(1, routing, is_real);
    std::vector<double> probabilities(at(kExperts));
    std::vector<std::int64_t> chosen(at(kExperts));
    std::int64_t dropped = 0, tokens = 0;
    for (Index t = 0; t < kTokens; ++t) {
      if (is_real[at(t)] == 0) continue;
      ++tokens;
      double sum = 0;
      for (Index e = 0; e < kExperts; ++e) sum += static_cast<double>(routing.scores.row(t)[e]);
      if (score == RouterScore::kSoftmax) sum = 1;
      for (Index e = 0; e < kExperts; ++e)
        probabilities[at(e)] += static_cast<double>(routing.scores.row(t)[e]) / sum;
      for (Index slot = 3 * t; slot < 3 * t + 3; ++slot) {
        ++chosen[at(routing.topk_idx[at(slot)])];
        dropped += routing.kept_idx[at(slot)] == kNoExpert ? 1 : 0;
      }
    }
    for (Index e = 0; e < kExperts; ++e) {
      EXPECT_NEAR(statistics.sums(1).per_expert[at(e)], probabilities[at(e)], 1e-11) << e;
      EXPECT_EQ(statistics.chosen(1)[at(e)], chosen[at(e)]) << e;
      EXPECT_EQ(statistics.chosen(0)[at(e)], 0) << "another layer";
    }
    EXPECT_EQ(statistics.dropped(1), dropped);
    EXPECT_EQ(statistics.chosen().tokens, tokens);
  }
}

TEST(RouterStatistics, AreTheSameForAnyNumberOfThreads) {
  const int before = threads();
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    RouterStatistics alone(1, kExperts), together(1, kExperts);
    const Routing routing = routed(score);
    set_threads(1);
    alone.add(0, routing, {}, 110);
    set_threads(3);
    together.add(0, routing, {}, 110);
    EXPECT_EQ(alone.sums(0).per_expert, together.sums(0).per_expert);
    EXPECT_EQ(alone.sums(0).entropy, together.sums(0).entropy);
    EXPECT_EQ(alone.sums(0).sequence_losses, together.sums(0).sequence_losses);
    EXPECT_EQ(alone.chosen().per_expert, together.chosen().per_expert);
  }
  set_threads(before);
}

TEST(RouterStatistics, SeveralAreSummedInOneMessageAsEachByItself) {
  const Communicator world = Communicator::world();
  std::vector<RouterStatistics> each, together;
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    RouterStatistics statistics(2, kExperts);
    statistics.add(1, routed(score), every_third_is_padding(), 100);
    each.push_back(statistics);
    together.push_back(std::move(statistics));
  }
  std::vector<double> reals;
  for (const RouterStatistics& statistics : together) statistics.append_reals(reals);
  world.all_sum(reals);
  std::span<const double> left = reals;
  for (RouterStatistics& statistics : together) statistics.take_reals(left);
  EXPECT_TRUE(left.empty());
  for (std::size_t i = 0; i < each.size(); ++i) {
    each[i].sum_over(world);
    for (const Index layer : {Index{0}, Index{1}}) {
      const ProbabilitySums &sums = together[i].sums(layer), &expected = each[i].sums(layer);
      EXPECT_EQ(sums.per_expert, expected.per_expert);
      EXPECT_EQ(sums.entropy, expected.entropy);
      EXPECT_EQ(sums.squared_log_sum_exp, expected.squared_log_sum_exp);
      EXPECT_EQ(sums.sequence_losses, expected.sequence_losses);
    }
    EXPECT_GT(each[i].sums(1).entropy, 0);
  }
}

}  // namespace
}  // namespace moeloom
