#include "moe/routing/router_layer.hpp"

#include "moe/routing/router_losses.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <sstream>

#include "support/expect_error.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

constexpr Index kHidden = 6, kExperts = 5, kTopK = 2;

/// A router on this rank's stretch of the tokens of all ranks.
struct Routed {
  Matrix hidden, weight = random_matrix(kExperts, kHidden, 1), d_weight{kExperts, kHidden};
  Matrix bias = random_matrix(1, kExperts, 2), d_bias{1, kExperts};
  Matrix logits, d_hidden;
  Routing routing;
  RouterLayer layer;
  RoutedTokens tokens;

  /// `all` [T, D] of the ranks of `world` in order.
  Routed(const Communicator& world, const Matrix& all, const RouterTraining& training,
         bool is_training = true, RouterSettings settings = softmax_router(kExperts, kTopK),
         RouterDType dtype = RouterDType::kFp32, bool biased = false)
      : layer({weight, d_weight, nullptr, biased ? bias.view().flat() : std::span<float>(),
               biased ? d_bias.view().flat() : std::span<float>()},
              settings, 0, training, dtype) {
    const Index each = ceil_div(all.rows(), world.size());
    const Index begin = std::min(all.rows(), each * world.rank());
    const Index count = std::min(each, all.rows() - begin);
    hidden = Matrix::copy_of(all.view().rows_from(begin, count));
    tokens = {.world = &world, .training = is_training};
    layer.forward(tokens, hidden, logits, routing);
  }

  void backward(ConstMatrixView d_weights) {
    d_hidden = Matrix(hidden.rows(), kHidden);
    layer.backward(tokens, hidden, routing, d_weights.flat(), {}, logits, d_hidden);
  }
};

/// The lists of all ranks joined, each token's on its own.
std::vector<std::set<std::int32_t>> experts_of_all(const Communicator& world, const Routing& routing) {
  std::string mine;
  for (Index t = 0; t < routing.tokens(); ++t) {
    for (Index j = 0; j < routing.top_k; ++j)
      mine += std::to_string(routing.sent_idx()[at(t * routing.top_k + j)]) + " ";
    mine += "\n";
  }
  std::vector<std::set<std::int32_t>> all;
  for (const std::string& text : world.all_gather_text(mine)) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream numbers(line);
      std::set<std::int32_t> experts;
      for (std::int32_t e; numbers >> e;)
        if (e != kNoExpert) experts.insert(e);
      all.push_back(experts);
    }
  }
  return all;
}

TEST(RouterLayer, LetsEachExpertChooseItsTokensAmongThoseOfAllRanks) {
  const Communicator world = Communicator::world(), alone = Communicator::self();
  for (const Index tokens : {1, 7, 30}) {
    SCOPED_TRACE(tokens);
    const Matrix all = random_matrix(tokens, kHidden, 7);
    const Routed whole(alone, all, {.expert_choice = true});
    const auto chosen = experts_of_all(alone, whole.routing);
    const Index capacity = expert_capacity(1, tokens, kTopK, kExperts);
    for (std::int32_t e = 0; e < kExperts; ++e) {
      std::vector<float> taken, left;
      for (Index t = 0; t < tokens; ++t)
        (chosen[at(t)].contains(e) ? taken : left).push_back(whole.routing.scores.row(t)[e]);
      EXPECT_EQ(std::ssize(taken), capacity);
      if (!left.empty()) {
        EXPECT_GE(*std::ranges::min_element(taken), *std::ranges::max_element(left));
      }
    }
    const Routed dealt(world, all, {.expert_choice = true});
    EXPECT_EQ(experts_of_all(world, dealt.routing), chosen);
  }
}

TEST(RouterLayer, LetsTokensChooseWhereItDoesNotTrain) {
  const Communicator world = Communicator::world();
  const Matrix all = random_matrix(9, kHidden, 8);
  Routing plain;
  const Routed evaluated(world, all, {.expert_choice = true, .capacity_factor = 0.5}, false);
  Matrix logits(evaluated.hidden.rows(), kExperts);
  matmul(evaluated.hidden, evaluated.weight, logits);
  route(logits, softmax_router(kExperts, kTopK), plain);
  EXPECT_EQ(evaluated.routing.topk_idx, plain.topk_idx);
  EXPECT_EQ(evaluated.routing.topk_weights, plain.topk_weights);
  EXPECT_TRUE(evaluated.routing.kept_idx.empty());
}

TEST(RouterLayer, KeepsNoMoreRowsOfAnExpertThanItsCapacity) {
  const Communicator world = Communicator::world(), alone = Communicator::self();
  const Matrix all = random_matrix(24, kHidden, 9);
  for (const double factor : {0.01, 0.5, 1.0, 1.25, 5.0}) {
    SCOPED_TRACE(factor);
    const RouterTraining training{.capacity_factor = factor};
    const Index capacity = expert_capacity(factor, 24, kTopK, kExperts);
    const Routed free(alone, all, {});
    const Routed whole(alone, all, training);
    const auto chosen = experts_of_all(alone, free.routing), kept = experts_of_all(alone, whole.routing);
    for (std::int32_t e = 0; e < kExperts; ++e) {
      Index asked = 0, taken = 0;
      for (std::size_t t = 0; t < chosen.size(); ++t) {
        EXPECT_TRUE(chosen[t].contains(e) || !kept[t].contains(e));
        asked += chosen[t].contains(e);
        taken += kept[t].contains(e);
      }
      EXPECT_EQ(taken, std::min(asked, capacity));
    }
    RouterStatistics statistics(1, kExperts);
    statistics.add(0, whole.routing, {});
    EXPECT_EQ(statistics.dropped(0), std::ranges::count(whole.routing.kept_idx, kNoExpert));
    EXPECT_EQ(statistics.dropped(0) > 0, factor < 5);
    EXPECT_EQ(experts_of_all(world, Routed(world, all, training).routing), kept);
  }
}

TEST(RouterLayer, DropsTheSmallestWeights) {
  const Communicator alone = Communicator::self();
  const Routed whole(alone, random_matrix(40, kHidden, 10), {.capacity_factor = 0.5});
  const Routing& routing = whole.routing;
  for (std::int32_t e = 0; e < kExperts; ++e) {
    float smallest_kept = 10, largest_dropped = 0;
    for (std::size_t slot = 0; slot < routing.topk_idx.size(); ++slot) {
      if (routing.topk_idx[slot] != e) continue;
      if (routing.kept_idx[slot] == e)
        smallest_kept = std::min(smallest_kept, routing.topk_weights[slot]);
      else
        largest_dropped = std::max(largest_dropped, routing.topk_weights[slot]);
    }
    EXPECT_GE(smallest_kept, largest_dropped);
  }
}

TEST(RouterLayer, TakesChoicesThatAreGivenAndWeighsThemByItsOwnScores) {
  const Communicator alone = Communicator::self();
  const Matrix all = random_matrix(3, kHidden, 11);
  Routed router(alone, all, {.expert_choice = true});
  const std::vector<std::int32_t> given = {4, 0, 1, kNoExpert, kNoExpert, kNoExpert};
  router.tokens.given_topk_idx = given;
  router.layer.forward(router.tokens, router.hidden, router.logits, router.routing);
  EXPECT_EQ(router.routing.topk_idx, given);
  EXPECT_TRUE(router.routing.kept_idx.empty());
  const float *scores = router.routing.scores.row(0), *weights = router.routing.topk_weights.data();
  EXPECT_NEAR(weights[0], scores[4] / (scores[4] + scores[0]), 1e-6);
  EXPECT_NEAR(weights[2], 1, 1e-6);
  for (const Index slot : {3, 4, 5}) EXPECT_EQ(weights[slot], 0);
}

TEST(RouterLayer, WeighsAndDropsGivenChoicesAsItDidItsOwn) {
  const Communicator world = Communicator::world();
  const Matrix all = random_matrix(24, kHidden, 18);
  for (const RouterDType dtype : {RouterDType::kFp32, RouterDType::kFp64}) {
    Routed router(world, all, {.capacity_factor = 0.75}, true, softmax_router(kExperts, kTopK), dtype);
    const Routing own = std::move(router.routing);
    router.routing = {};
    router.tokens.given_topk_idx = own.topk_idx;
    router.layer.forward(router.tokens, router.hidden, router.logits, router.routing);
    EXPECT_EQ(router.routing.topk_weights, own.topk_weights);
    EXPECT_EQ(router.routing.kept_idx, own.kept_idx);
  }
}

TEST(RouterLayer, GivesPaddingNoRowOfACapacity) {
  const Communicator alone = Communicator::self();
  const Matrix all = random_matrix(20, kHidden, 19);
  std::vector<std::uint8_t> is_real(20, 1);
  std::fill_n(is_real.begin(), 10, std::uint8_t{0});
  Routed router(alone, all, {.capacity_factor = 0.5});
  router.tokens.is_real = is_real;
  router.layer.forward(router.tokens, router.hidden, router.logits, router.routing);
  for (Index slot = 0; slot < 10 * kTopK; ++slot) EXPECT_EQ(router.routing.kept_idx[at(slot)], kNoExpert);
  EXPECT_GT(std::ranges::count_if(router.routing.kept_idx, [](std::int32_t e) { return e != kNoExpert; }), 0);
}

TEST(RouterLayer, HashesAnIdToDifferentExpertsAndIdsEvenly) {
  const Communicator alone = Communicator::self();
  RouterSettings settings = softmax_router(kExperts, 3);
  settings.choose_by = ChooseBy::kHash;
  Matrix weight = random_matrix(kExperts, kHidden, 1);
  RouterLayer first({weight, {}}, settings, 0), second({weight, {}}, settings, 1);
  const Index tokens = 2000;
  const Matrix hidden = random_matrix(tokens, kHidden, 12);
  std::vector<std::int32_t> ids(at(tokens));
  for (Index t = 0; t < tokens; ++t) ids[at(t)] = static_cast<std::int32_t>(t % 1000);
  Matrix logits;
  Routing routing, other;
  first.forward({.input_ids = ids}, hidden, logits, routing);
  second.forward({.input_ids = ids}, hidden, logits, other);
  EXPECT_NE(routing.topk_idx, other.topk_idx);
  std::vector<Index> rows(at(kExperts));
  for (Index t = 0; t < tokens; ++t) {
    const auto mine = std::span(routing.topk_idx).subspan(at(t * 3), 3);
    EXPECT_EQ(std::set<std::int32_t>(mine.begin(), mine.end()).size(), 3u);
    for (const std::int32_t e : mine) ++rows[at(e)];
    // Wherever the id stands.
    EXPECT_TRUE(std::ranges::equal(mine, std::span(routing.topk_idx).subspan(at(t % 1000 * 3), 3)));
  }
  for (const Index n : rows)
    EXPECT_NEAR(static_cast<double>(n), 1200, 120);  // 600 ids of 1000: deviation 15 each
  EXPECT_NE(
      testing::message_of<ShapeError>([&] { first.forward({}, hidden, logits, routing); }).find("id a token"),
      std::string::npos);
}

/// <r, weights> of a forward.
double weighted(Routed& router, const Matrix& upstream) {
  router.layer.forward(router.tokens, router.hidden, router.logits, router.routing);
  double sum = 0;
  for (std::size_t i = 0; i < router.routing.topk_weights.size(); ++i)
    sum += static_cast<double>(upstream.view().data[i]) * router.routing.topk_weights[i];
  return sum;
}

TEST(RouterLayer, HasTheGradientsOfWeightBiasAndInputInFloatAndInDouble) {
  const Communicator alone = Communicator::self();
  for (const RouterDType dtype : {RouterDType::kFp32, RouterDType::kFp64}) {
    Routed router(alone, random_matrix(4, kHidden, 14), {}, true, softmax_router(kExperts, kTopK, false),
                  dtype, true);
    const Matrix upstream = random_matrix(4, kTopK, 15);
    weighted(router, upstream);
    router.backward(upstream);
    const auto expect_slopes = [&](MatrixView x, const Matrix& gradient) {
      for (Index i = 0; i < x.size(); ++i) {
        const float at = x.data[i], step = 4e-3f;
        x.data[i] = at + step;
        const double above = weighted(router, upstream);
        x.data[i] = at - step;
        const double below = weighted(router, upstream);
        x.data[i] = at;
        // fp32 weights over a difference of 8e-3: 1e-7 / 8e-3, and the cubic term.
        EXPECT_NEAR(gradient.view().data[i], (above - below) / (2 * step), 1e-4) << i;
      }
    };
    expect_slopes(router.weight, router.d_weight);
    expect_slopes(router.bias, router.d_bias);
    expect_slopes(router.hidden, router.d_hidden);
  }
}

TEST(RouterLayer, LeavesAFrozenWeightAloneAndStillPassesItsGradientOn) {
  const Communicator alone = Communicator::self();
  const Matrix hidden = random_matrix(4, kHidden, 16), upstream = random_matrix(4, kTopK, 17);
  Routed trained(alone, hidden, {});
  trained.backward(upstream);
  Matrix weight = random_matrix(kExperts, kHidden, 1), logits, d_hidden(4, kHidden);
  RouterLayer frozen({weight, {}}, softmax_router(kExperts, kTopK), 0);
  Routing routing;
  frozen.forward({}, hidden, logits, routing);
  frozen.backward({}, hidden, routing, upstream.view().flat(), {}, logits, d_hidden);
  for (Index i = 0; i < d_hidden.view().size(); ++i)
    EXPECT_EQ(d_hidden.view().data[i], trained.d_hidden.view().data[i]);
}

TEST(RouterLayer, CountsACapacityOfWholeRows) {
  EXPECT_EQ(expert_capacity(1, 10, 2, 5), 4);
  EXPECT_EQ(expert_capacity(1.25, 10, 2, 5), 5);
  EXPECT_EQ(expert_capacity(1, 11, 2, 5), 5);
  EXPECT_EQ(expert_capacity(1e-9, 10, 2, 5), 1);
  EXPECT_EQ(expert_capacity(1e30, 10, 2, 5), 10);
}

}  // namespace
}  // namespace moeloom
