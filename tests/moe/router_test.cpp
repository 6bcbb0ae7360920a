#include "moeloom/moe/router.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/moe/router_losses.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "support/expect_error.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

/// The router and its losses in double, written from the formulas: loss = <r, weights> + aux_loss + z_loss.
struct Reference {
  RouterSettings settings;
  std::vector<std::int32_t> chosen;  // constant under differentiation
  std::vector<double> upstream;      // r [T, K]
  double aux = 0, z = 0;

  double loss(const std::vector<double>& logits) const {
    const Index experts = settings.num_experts;
    const Index k = settings.top_k;
    const Index tokens = static_cast<Index>(logits.size()) / experts;
    std::vector<double> mean(static_cast<std::size_t>(experts));
    std::vector<double> share(static_cast<std::size_t>(experts));
    double total = 0;
    double squares = 0;
    for (Index t = 0; t < tokens; ++t) {
      double sum = 0;
      for (Index e = 0; e < experts; ++e) sum += std::exp(logits[static_cast<std::size_t>(t * experts + e)]);
      squares += std::log(sum) * std::log(sum);
      double picked = 0;
      for (Index e = 0; e < experts; ++e)
        mean[static_cast<std::size_t>(e)] +=
            std::exp(logits[static_cast<std::size_t>(t * experts + e)]) / sum;
      const auto score = [&](Index j) {
        const auto slot = static_cast<std::size_t>(t * k + j);
        const double power = std::exp(logits[static_cast<std::size_t>(t * experts + chosen[slot])]);
        return power / (settings.score == RouterScore::kSoftmax ? sum : 1 + power);
      };
      for (Index j = 0; j < k; ++j) picked += score(j);
      for (Index j = 0; j < k; ++j) {
        total += upstream[static_cast<std::size_t>(t * k + j)] * score(j) * settings.scaling_factor /
                 (settings.norm_topk_prob ? picked : 1.0);
        share[static_cast<std::size_t>(chosen[static_cast<std::size_t>(t * k + j)])] += 1;
      }
    }
    const auto n = static_cast<double>(tokens);
    for (std::size_t e = 0; e < mean.size(); ++e)
      total += aux * static_cast<double>(experts) * share[e] / n * mean[e] / n;
    return total + z * squares / n;
  }
};

/// The settings of DeepSeek's router, of which tests vary one or two.
RouterSettings sigmoid_settings(Index experts, Index top_k, bool normalise, Index groups = 1,
                                Index kept_groups = 1) {
  return {.num_experts = experts,
          .top_k = top_k,
          .norm_topk_prob = normalise,
          .score = RouterScore::kSigmoid,
          .num_groups = groups,
          .topk_group = kept_groups,
          .scaling_factor = 2.5f};
}

TEST(Router, GivesANaNLogitsTokenDifferentExpertsAndLeavesOthersAlone) {
  for (const RouterSettings& settings : {RouterSettings{4, 1},
                                         {4, 2},
                                         {4, 4},
                                         sigmoid_settings(4, 1, false),
                                         sigmoid_settings(4, 2, true),
                                         sigmoid_settings(4, 2, true, 2, 1),
                                         sigmoid_settings(4, 4, true, 2, 2)})
    for (Index bad = 0; bad < 4; ++bad) {
      const Index k = settings.top_k;
      Matrix logits = random_matrix(3, 4, 5);
      Routing healthy, routing;
      route(logits, settings, healthy);
      logits.row(1)[bad] = std::numeric_limits<float>::quiet_NaN();
      route(logits, settings, routing);
      const auto chosen = routing.topk_idx.begin() + k;
      EXPECT_EQ(std::set<std::int32_t>(chosen, chosen + k).size(), at(k));
      for (Index j = 0; j < k; ++j) {
        EXPECT_TRUE(chosen[j] >= 0 && chosen[j] < 4);
        EXPECT_TRUE(std::isnan(routing.topk_weights[at(k + j)]));
        EXPECT_EQ(routing.topk_weights[at(j)], healthy.topk_weights[at(j)]);
        EXPECT_EQ(routing.topk_idx[at(2 * k + j)], healthy.topk_idx[at(2 * k + j)]);
      }
    }
}

TEST(Router, BackwardMatchesCentralDifferencesInDouble) {
  struct Case {
    Index tokens;
    RouterSettings settings;
    double aux, z;
  };
  RouterSettings scaled{5, 2, true};
  scaled.scaling_factor = 1.8f;
  for (const Case& c :
       {Case{5, {4, 2, true}, 0, 0}, Case{5, {4, 2, false}, 0, 0}, Case{7, {6, 3, true}, 0.5, 0.1},
        Case{1, {3, 1, false}, 0.5, 0}, Case{4, {3, 3, true}, 0, 1}, Case{6, {1, 1, true}, 1, 1},
        Case{5, scaled, 0.5, 0.1}, Case{5, sigmoid_settings(6, 3, true), 0, 0},
        Case{5, sigmoid_settings(6, 3, false), 0, 0}, Case{9, sigmoid_settings(8, 2, true, 4, 2), 0, 0},
        Case{4, sigmoid_settings(3, 3, true), 0, 0}, Case{3, sigmoid_settings(1, 1, true), 0, 0},
        Case{3, sigmoid_settings(1, 1, false), 0, 0}}) {
    const RouterSettings& settings = c.settings;
    const Matrix logits = random_matrix(c.tokens, settings.num_experts, 11);
    const Matrix upstream = random_matrix(c.tokens, settings.top_k, 12);
    Routing routing;
    route(logits, settings, routing);
    RouterStatistics statistics(settings.num_experts);
    statistics.add(routing, settings.top_k, {});
    Matrix d_logits(c.tokens, settings.num_experts);
    route_backward(routing, settings, upstream.view().flat(), router_loss_gradient(statistics, c.aux, c.z),
                   {}, d_logits);
    Reference reference{settings, routing.topk_idx, {}, c.aux, c.z};
    for (const float u : upstream.view().flat()) reference.upstream.push_back(u);
    std::vector<double> x(logits.view().flat().begin(), logits.view().flat().end());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double step = 1e-5;
      const double at = x[i];
      x[i] = at + step;
      const double above = reference.loss(x);
      x[i] = at - step;
      const double below = reference.loss(x);
      x[i] = at;
      // fp32 softmax against a double difference: a few units of 6e-8 on values of order 1.
      EXPECT_NEAR(d_logits.view().data[i], (above - below) / (2 * step), 2e-6) << "element " << i;
    }
  }
}

/// The experts that the formulas choose, by whole sorts and in double.
std::vector<std::int32_t> chosen_by_sorting(const float* scores, const RouterSettings& s) {
  std::vector<double> value(scores, scores + s.num_experts);
  for (std::size_t e = 0; e < s.correction_bias.size(); ++e)
    value[e] = static_cast<float>(scores[e] + s.correction_bias[e]);
  const auto by_falling = [](const std::vector<double>& values) {
    std::vector<std::int32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(), [&](std::int32_t i) { return values[at(i)]; });
    return order;
  };
  const Index size = s.num_experts / s.num_groups;
  std::vector<double> worth;
  for (Index g = 0; g < s.num_groups; ++g) {
    std::vector<double> group(value.begin() + g * size, value.begin() + (g + 1) * size);
    std::ranges::sort(group, std::greater());
    worth.push_back(group[0] + (size > 1 ? group[1] : 0));
  }
  const std::vector<std::int32_t> groups = by_falling(worth);
  for (Index left_out = s.topk_group; left_out < s.num_groups; ++left_out)
    std::fill_n(value.begin() + groups[at(left_out)] * size, size, 0.0);
  std::vector<std::int32_t> order = by_falling(value);
  order.resize(at(s.top_k));
  return order;
}

TEST(Router, ChoosesFromTheBestGroupsByBiasedScoresAndWeighsByPlainOnes) {
  struct Case {
    const char* name;
    RouterSettings settings;
    double bias;  // deviation; 0: none
  };
  for (const Case& c : {Case{"half of the groups", sigmoid_settings(16, 4, true, 4, 2), 0.2},
                        Case{"one group of many", sigmoid_settings(12, 2, false, 3, 1), 0.2},
                        Case{"every group kept", sigmoid_settings(8, 3, true, 4, 4), 0.2},
                        Case{"groups of one expert", sigmoid_settings(6, 2, true, 6, 3), 0.2},
                        Case{"groups of two", sigmoid_settings(8, 4, true, 4, 2), 0.2},
                        Case{"every kept expert", sigmoid_settings(12, 6, true, 4, 2), 0.2},
                        Case{"a bias that decides alone", sigmoid_settings(8, 3, true, 2, 1), 50},
                        Case{"no bias", sigmoid_settings(8, 3, false, 2, 1), 0},
                        Case{"softmax with a bias", {8, 3, true}, 0.2},
                        Case{"one expert", sigmoid_settings(1, 1, true), 0.2}}) {
    SCOPED_TRACE(c.name);
    RouterSettings settings = c.settings;
    const Matrix bias = random_matrix(1, settings.num_experts, 62, c.bias);
    if (c.bias > 0) settings.correction_bias = bias.view().flat();
    Routing routing;
    route(random_matrix(100, settings.num_experts, 61), settings, routing);  // more than one task
    for (Index t = 0; t < 100; ++t) {
      const auto chosen = routing.topk_idx.begin() + t * settings.top_k;
      const std::vector<std::int32_t> expected = chosen_by_sorting(routing.scores.row(t), settings);
      ASSERT_EQ(std::vector<std::int32_t>(chosen, chosen + settings.top_k), expected) << "token " << t;
      double sum = 0;
      for (const std::int32_t e : expected) sum += routing.scores.row(t)[e];
      for (Index j = 0; j < settings.top_k; ++j)
        EXPECT_NEAR(routing.topk_weights[at(t * settings.top_k + j)],
                    routing.scores.row(t)[expected[at(j)]] / (settings.norm_topk_prob ? sum : 1.0) *
                        settings.scaling_factor,
                    1e-6);  // a few roundings of numbers up to 2.5
    }
  }
}

TEST(Router, ScoresOfASigmoidDoNotDependOnEachOther) {
  Matrix logits(1, 4);
  logits.row(0)[0] = 100;
  logits.row(0)[1] = -2;
  logits.row(0)[2] = -1000;
  Routing routing;
  route(logits, sigmoid_settings(4, 2, false), routing);
  EXPECT_EQ(routing.scores.row(0)[0], 1);
  EXPECT_NEAR(routing.scores.row(0)[1], 1 / (1 + std::exp(2.0)), 1e-7);
  EXPECT_EQ(routing.scores.row(0)[2], 0);
  EXPECT_EQ(routing.scores.row(0)[3], 0.5f);
  EXPECT_TRUE(routing.log_sum_exp.empty());
}

TEST(Router, WeighsNothingWhereEverySigmoidIsZero) {
  Matrix logits(1, 3);
  fill(logits, -1000);
  Routing routing;
  route(logits, sigmoid_settings(3, 2, true), routing);
  EXPECT_EQ(routing.topk_weights, (std::vector<float>{0, 0}));
  Matrix d_logits(1, 3);
  route_backward(routing, sigmoid_settings(3, 2, true), std::vector<float>{1, -1}, {}, {}, d_logits);
  for (Index e = 0; e < 3; ++e) EXPECT_EQ(d_logits.row(0)[e], 0);
}

TEST(Router, RefusesSettingsThatContradictEachOtherByTheirName) {
  const std::vector<float> bias(5);
  RouterSettings biased = sigmoid_settings(4, 2, true);
  biased.correction_bias = bias;
  const auto refusal = [](const RouterSettings& settings) {
    Routing routing;
    return testing::message_of<ShapeError>([&] { route(Matrix(2, 4), settings, routing); });
  };
  const auto says = [&](const RouterSettings& settings, const char* words) {
    EXPECT_NE(refusal(settings).find(words), std::string::npos) << refusal(settings);
  };
  says({3, 2}, "one column an expert");
  says({4, 0}, "top_k must lie");
  says({4, 5}, "top_k must lie");
  says(biased, "correction_bias");
  says(sigmoid_settings(4, 1, true, 0, 1), "num_groups");
  says(sigmoid_settings(4, 1, true, 3, 1), "num_groups");
  says(sigmoid_settings(4, 1, true, 2, 0), "topk_group must lie");
  says(sigmoid_settings(4, 1, true, 2, 3), "topk_group must lie");
  says(sigmoid_settings(4, 3, true, 2, 1), "raise topk_group or lower top_k");
}

TEST(Router, TakesTheLowerExpertOnATie) {
  Matrix logits(2, 5);  // all equal
  logits.view()(1, 3) = 1;
  Routing routing;
  route(logits, {5, 2, true}, routing);
  EXPECT_EQ(routing.topk_idx, (std::vector<std::int32_t>{0, 1, 3, 0}));
}

TEST(Router, ChoosesEveryExpertOnceWhenTopKIsAllOfThem) {
  Routing routing;
  route(random_matrix(9, 6, 5), {6, 6, true}, routing);
  for (Index t = 0; t < 9; ++t) {
    int seen = 0;
    for (Index k = 0; k < 6; ++k) {
      seen |= 1 << routing.topk_idx[static_cast<std::size_t>(t * 6 + k)];
      if (k > 0) {
        EXPECT_GE(routing.topk_weights[static_cast<std::size_t>(t * 6 + k - 1)],
                  routing.topk_weights[static_cast<std::size_t>(t * 6 + k)]);
      }
    }
    EXPECT_EQ(seen, 63);
  }
}

TEST(Router, RoutesNoTokens) {
  Routing routing;
  route(Matrix(0, 4), {4, 2, true}, routing);
  EXPECT_EQ(routing.tokens(), 0);
}

}  // namespace
}  // namespace moeloom
