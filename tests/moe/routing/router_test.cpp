#include "moe/routing/router.hpp"

#include "moe/routing/router_losses.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "support/expect_error.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

/// The router and its losses of one layer in double, written from the formulas: loss = <r, weights> +
/// aux_loss + z_loss.
struct Reference {
  RouterSettings settings;
  std::vector<std::int32_t> chosen;         // constant under differentiation
  std::vector<double> upstream;             // r [T, K]
  std::vector<std::int32_t> balanced = {};  // [T, K] of kSoftmax; constant, too
  double aux = 0, z = 0;

  static double score_of(RouterScore score, double x) {
    if (score == RouterScore::kSigmoid) return 1 / (1 + std::exp(-x));
    if (score == RouterScore::kSqrtSoftplus) return std::sqrt(std::log1p(std::exp(x)));
    return std::exp(x);  // before the division by the sum over all experts
  }
  double divisor(double sum) const {
    if (settings.divide.by == DivideBy::kSum) return sum;
    if (settings.divide.by == DivideBy::kSumPlus) return sum + settings.divide.number;
    if (settings.divide.by == DivideBy::kSumAtLeast)
      return std::max(sum, static_cast<double>(settings.divide.number));
    return 1;
  }
  /// v of the slots of one token.
  std::vector<double> values(const double* logits, const std::vector<double>& scores,
                             const std::int32_t* slots, Index k) const {
    std::vector<double> v(at(k));
    double sum = 0;
    for (Index j = 0; j < k; ++j) {
      if (slots[j] == kNoExpert) continue;
      const double logit = logits[slots[j]];
      if (settings.weigh_by == WeighBy::kScore) v[at(j)] = scores[at(slots[j])];
      if (settings.weigh_by == WeighBy::kSigmoidOfLogit) v[at(j)] = 1 / (1 + std::exp(-logit));
      if (settings.weigh_by == WeighBy::kSoftmaxOfChosen) sum += v[at(j)] = std::exp(logit);
      if (settings.weigh_by == WeighBy::kSoftmaxOfNear) {
        double near = 0;
        for (Index e = 0; e < settings.num_experts; ++e) {
          const bool is_taken = std::find(slots, slots + j, e) != slots + j;
          const double distance = (logit - logits[e]) / std::max(std::abs(logits[e]), logit);
          if (!is_taken && distance <= static_cast<double>(settings.nearness)) near += std::exp(logits[e]);
        }
        v[at(j)] = std::exp(logit) / near;
      }
    }
    if (settings.weigh_by == WeighBy::kSoftmaxOfChosen)
      for (double& each : v) each /= sum;
    return v;
  }

  double loss(const std::vector<double>& logits) const {
    const Index experts = settings.num_experts;
    const Index tokens = static_cast<Index>(logits.size()) / experts;
    const Index k = tokens == 0 ? 0 : static_cast<Index>(chosen.size()) / tokens;
    std::vector<double> mean(at(experts)), share(at(experts));
    double total = 0, squares = 0;
    for (Index t = 0; t < tokens; ++t) {
      const double* row = logits.data() + t * experts;
      std::vector<double> scores;
      for (Index e = 0; e < experts; ++e) scores.push_back(score_of(settings.score, row[e]));
      const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
      double powers = 0;
      for (Index e = 0; e < experts; ++e) powers += std::exp(row[e]);
      const bool by_softmax = settings.balance_by == BalanceBy::kSoftmax;
      for (Index e = 0; e < experts; ++e)
        mean[at(e)] += by_softmax ? std::exp(row[e]) / powers : scores[at(e)] / sum;
      if (settings.score == RouterScore::kSoftmax) {
        squares += std::log(sum) * std::log(sum);
        for (double& each : scores) each /= sum;
      }
      const std::int32_t* slots = chosen.data() + t * k;
      const std::vector<double> v = values(row, scores, slots, k);
      const double divided = divisor(std::accumulate(v.begin(), v.end(), 0.0));
      for (Index j = 0; j < k; ++j) {
        if (slots[j] == kNoExpert) continue;
        const double scale = settings.expert_scale.empty() ? 1.0 : settings.expert_scale[at(slots[j])];
        total += upstream[at(t * k + j)] * v[at(j)] / divided * settings.scaling_factor * scale;
        if (!by_softmax) share[at(slots[j])] += 1;
      }
    }
    for (const std::int32_t e : balanced) share[at(e)] += 1;
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
          .score = RouterScore::kSigmoid,
          .num_groups = groups,
          .topk_group = kept_groups,
          .divide = normalise ? Division{DivideBy::kSumPlus, 1e-20f} : Division{DivideBy::kNothing},
          .scaling_factor = 2.5f};
}

TEST(Router, GivesANaNLogitsTokenDifferentExpertsAndLeavesOthersAlone) {
  for (const RouterSettings& settings :
       {softmax_router(4, 1), softmax_router(4, 2), softmax_router(4, 4), sigmoid_settings(4, 1, false),
        sigmoid_settings(4, 2, true), sigmoid_settings(4, 2, true, 2, 1), sigmoid_settings(4, 4, true, 2, 2)})
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

/// Every composition of the parts that the choice has nothing to do with.
std::vector<RouterSettings> compositions() {
  std::vector<RouterSettings> all;
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSqrtSoftplus})
    for (const WeighBy weigh_by :
         {WeighBy::kScore, WeighBy::kSoftmaxOfChosen, WeighBy::kSigmoidOfLogit, WeighBy::kSoftmaxOfNear})
      for (const Division& divide :
           {Division{DivideBy::kNothing}, Division{DivideBy::kSum}, Division{DivideBy::kSumPlus, 0.3f},
            Division{DivideBy::kSumAtLeast, 0.8f}})
        all.push_back({.num_experts = 6,
                       .top_k = 3,
                       .score = score,
                       .weigh_by = weigh_by,
                       .nearness = 0.9f,
                       .divide = divide,
                       .scaling_factor = 1.8f});
  return all;
}

struct Loss {
  double aux = 0, z = 0;
};

void expect_gradients(const RouterSettings& settings, Index tokens, Loss weights,
                      const std::vector<std::int32_t>& given = {}) {
  const Matrix logits = random_matrix(tokens, settings.num_experts, 11);
  Routing routing;
  if (given.empty()) {
    route(logits, settings, routing);
  } else {
    score(logits, settings, routing);
    routing.topk_idx = given;
    routing.top_k = std::ssize(given) / tokens;
    weigh(logits, settings, routing);
  }
  const Matrix upstream = random_matrix(tokens, routing.top_k, 12);
  RouterStatistics statistics(1, settings.num_experts);
  statistics.add(0, routing, {});
  Matrix d_logits(tokens, settings.num_experts);
  std::vector<float> d_expert_scale(settings.expert_scale.size());
  const ChosenCounts& counts = statistics.chosen();
  route_backward(routing, settings, upstream.view().flat(),
                 router_loss_gradient(0, statistics, counts, counts, {}, weights.aux, weights.z), {},
                 d_logits);
  if (!d_expert_scale.empty())
    expert_scale_backward(routing, settings, upstream.view().flat(), {0, tokens}, d_expert_scale);
  std::vector<float> scale(settings.expert_scale.begin(), settings.expert_scale.end());
  Reference reference{settings, routing.topk_idx, {}, routing.balance_idx, weights.aux, weights.z};
  reference.settings.expert_scale = scale;
  for (const float u : upstream.view().flat()) reference.upstream.push_back(u);
  std::vector<double> x(logits.view().flat().begin(), logits.view().flat().end());
  const double step = 1e-5;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + step;
    const double above = reference.loss(x);
    x[i] = at - step;
    const double below = reference.loss(x);
    x[i] = at;
    // fp32 scores against a double difference: a few units of 6e-8 on values of order 1.
    EXPECT_NEAR(d_logits.view().data[i], (above - below) / (2 * step), 4e-6) << "element " << i;
  }
  for (std::size_t e = 0; e < scale.size(); ++e) {
    // The loss is linear in a scale.
    const float at = std::exchange(scale[e], 0.0f);
    const double without = reference.loss(x);
    scale[e] = 1;
    const double with = reference.loss(x);
    scale[e] = at;
    EXPECT_NEAR(d_expert_scale[e], with - without, 4e-6) << "scale of expert " << e;
  }
}

TEST(Router, BackwardMatchesCentralDifferencesInDouble) {
  for (const RouterSettings& settings : compositions()) {
    SCOPED_TRACE("score " + std::to_string(static_cast<int>(settings.score)) + " weigh " +
                 std::to_string(static_cast<int>(settings.weigh_by)) + " divide " +
                 std::to_string(static_cast<int>(settings.divide.by)));
    const double z = settings.score == RouterScore::kSoftmax ? 0.1 : 0;
    expect_gradients(settings, 5, {});
    expect_gradients(settings, 7, {.aux = 0.5, .z = z});
    RouterSettings scaled = settings;
    const std::vector<float> scale = {0.5f, 1, 2, 0.25f, 1.5f, 3};
    scaled.expert_scale = scale;
    expect_gradients(scaled, 5, {.aux = 0.5});
    RouterSettings by_softmax = settings;
    by_softmax.balance_by = BalanceBy::kSoftmax;
    expect_gradients(by_softmax, 6, {.aux = 0.5, .z = z});
    // A token without an expert, and slots without one.
    expect_gradients(settings, 3, {.aux = 0.5}, {4, 1, kNoExpert, kNoExpert, kNoExpert, kNoExpert, 0, 5, 2});
  }
  for (const RouterSettings& settings :
       {softmax_router(3, 1, false), softmax_router(3, 3), softmax_router(1, 1), sigmoid_settings(3, 3, true),
        sigmoid_settings(8, 2, true, 4, 2), sigmoid_settings(1, 1, true), sigmoid_settings(1, 1, false)})
    expect_gradients(settings, 4, {.aux = 0.5});
}

TEST(Router, SharesAChoiceAmongLogitsThatAreNearInTheRoundAndLeftOfThoseBefore) {
  const RouterSettings settings{.num_experts = 4,
                                .top_k = 2,
                                .choose_by = ChooseBy::kLogit,
                                .weigh_by = WeighBy::kSoftmaxOfNear,
                                .nearness = 0.1f,
                                .divide = {DivideBy::kNothing}};
  struct Round {
    std::vector<float> logits;
    std::vector<std::int32_t> chosen;
    std::vector<double> weights;
  };
  const auto share = [](double distance) { return 1 / (1 + std::exp(-distance)); };
  for (const Round& round : {Round{{0.5f, 1, 0.95f, -2}, {1, 2}, {share(0.05), 1}},
                             // Below 0 a logit's own size is what a distance is measured in.
                             Round{{-1.05f, -3, -1, -1.12f}, {2, 0}, {share(0.05), share(0.07)}},
                             Round{{0, 0, -1, -1}, {0, 1}, {0.5, 1}}}) {
    Matrix logits(1, 4);
    std::ranges::copy(round.logits, logits.row(0));
    Routing routing;
    route(logits, settings, routing);
    EXPECT_EQ(routing.topk_idx, round.chosen);
    for (std::size_t j = 0; j < 2; ++j) EXPECT_NEAR(routing.topk_weights[j], round.weights[j], 1e-6) << j;
  }
}

TEST(Router, IsBalancedByASoftmaxWhateverItsScoresAreAndWhateverItChose) {
  const std::vector<float> bias = {0, 0, 0, 0, 5, 5};  // decides the choice alone
  for (const RouterScore score : {RouterScore::kSigmoid, RouterScore::kSoftmax}) {
    RouterSettings settings = softmax_router(6, 2);
    settings.score = score;
    settings.correction_bias = bias;
    settings.balance_by = BalanceBy::kSoftmax;
    const Matrix logits = random_matrix(70, 6, 14);
    const std::vector<double> wide(logits.view().flat().begin(), logits.view().flat().end());
    Routing plain, routing, in_double;
    route(logits, softmax_router(6, 2), plain);
    route(logits, settings, routing);
    route(BasicView<const double>(wide.data(), logits.rows(), logits.cols()), settings, in_double);
    EXPECT_NE(routing.topk_idx, plain.topk_idx);
    EXPECT_EQ(routing.balance_idx, plain.topk_idx);
    EXPECT_EQ(in_double.balance_idx, plain.topk_idx);
    EXPECT_EQ(routing.log_sum_exp.empty(), score == RouterScore::kSigmoid);
    const std::vector<std::uint8_t> is_real = [] {
      std::vector<std::uint8_t> flags(70, 1);
      flags[3] = flags[69] = 0;
      return flags;
    }();
    RouterStatistics of_softmax(1, 6), got(1, 6);
    of_softmax.add(0, plain, is_real);
    got.add(0, routing, is_real);
    EXPECT_EQ(got.chosen().balanced(), of_softmax.chosen().per_expert);
    EXPECT_NE(got.chosen().per_expert, of_softmax.chosen().per_expert);
    EXPECT_EQ(got.sums(0).per_expert, of_softmax.sums(0).per_expert);
    EXPECT_EQ(aux_loss(got), aux_loss(of_softmax));
  }
}

TEST(Router, ComputesTheSameInDouble) {
  for (const RouterSettings& settings : compositions()) {
    const Matrix logits = random_matrix(70, settings.num_experts, 13);
    const std::vector<double> wide(logits.view().flat().begin(), logits.view().flat().end());
    Routing in_float, in_double;
    route(logits, settings, in_float);
    route(BasicView<const double>(wide.data(), logits.rows(), logits.cols()), settings, in_double);
    EXPECT_EQ(in_float.topk_idx, in_double.topk_idx);
    for (std::size_t i = 0; i < in_float.topk_weights.size(); ++i)
      EXPECT_NEAR(in_float.topk_weights[i], in_double.topk_weights[i], 1e-6);
    for (std::size_t t = 0; t < in_float.entropy.size(); ++t)
      EXPECT_NEAR(in_float.entropy[t], in_double.entropy[t], 2e-6);
  }
}

TEST(Router, TellsLogitsApartInDoubleThatAreOneNumberInFloat) {
  const std::vector<double> logits = {1.0, 1.0 + 1e-12, 0.5};
  RouterSettings settings = softmax_router(3, 1);
  settings.choose_by = ChooseBy::kLogit;
  Routing routing;
  route(BasicView<const double>(logits.data(), 1, 3), settings, routing);
  EXPECT_EQ(routing.topk_idx, std::vector<std::int32_t>{1});
}

TEST(Router, ChoosesExpertsOfAKeptGroupAlsoWhereEveryBiasIsNegative) {
  // Filled with 0 in place of -inf, an excluded expert would win against a score below 1 with a bias of -1.
  const std::vector<float> bias(8, -1.0f);
  for (const GroupWorth worth : {GroupWorth::kSumOfTwoBest, GroupWorth::kBest}) {
    RouterSettings settings = sigmoid_settings(8, 2, true, 4, 1);
    settings.group_worth = worth;
    settings.correction_bias = bias;
    Matrix logits(1, 8);
    logits.row(0)[4] = 2;
    Routing routing;
    route(logits, settings, routing);
    EXPECT_EQ(routing.topk_idx, (std::vector<std::int32_t>{4, 5}));
  }
}

TEST(Router, KeepsTheGroupsOfTheirBestOrOfTheSumOfTheirTwoBest) {
  Matrix logits(1, 6);
  const std::vector<float> values = {3, -9, 2, 2, 1, 1};
  std::ranges::copy(values, logits.row(0));
  RouterSettings settings = softmax_router(6, 1);
  settings.num_groups = 3;
  settings.choose_by = ChooseBy::kLogit;
  Routing routing;
  route(logits, settings, routing);  // 3 - 9, 2 + 2, 1 + 1
  EXPECT_EQ(routing.topk_idx.front(), 2);
  settings.group_worth = GroupWorth::kBest;
  route(logits, settings, routing);
  EXPECT_EQ(routing.topk_idx.front(), 0);
}

TEST(Router, KnowsHowSureItIs) {
  Matrix logits(3, 4);
  logits.row(1)[2] = 60;
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSqrtSoftplus}) {
    RouterSettings settings = softmax_router(4, 1);
    settings.score = score;
    Routing routing;
    route(logits, settings, routing);
    EXPECT_NEAR(routing.entropy[0], std::log(4.0), 1e-6);
    if (score == RouterScore::kSoftmax) {
      EXPECT_NEAR(routing.entropy[1], 0, 1e-6);
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
    std::fill_n(value.begin() + groups[at(left_out)] * size, size, -std::numeric_limits<double>::infinity());
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
                        Case{"softmax with a bias", softmax_router(8, 3), 0.2},
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
                    routing.scores.row(t)[expected[at(j)]] /
                        (settings.divide.by == DivideBy::kNothing ? 1.0 : sum) * settings.scaling_factor,
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
  says(softmax_router(3, 2), "one column an expert");
  says(softmax_router(4, 0), "top_k must lie");
  says(softmax_router(4, 5), "top_k must lie");
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
  route(logits, softmax_router(5, 2), routing);
  EXPECT_EQ(routing.topk_idx, (std::vector<std::int32_t>{0, 1, 3, 0}));
}

TEST(Router, ChoosesEveryExpertOnceWhenTopKIsAllOfThem) {
  Routing routing;
  route(random_matrix(9, 6, 5), softmax_router(6, 6), routing);
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
  route(Matrix(0, 4), softmax_router(4, 2), routing);
  EXPECT_EQ(routing.tokens(), 0);
}

}  // namespace
}  // namespace moeloom
