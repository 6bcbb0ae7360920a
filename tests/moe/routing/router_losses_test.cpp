#include "moe/routing/router_losses.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>
#include <numeric>

#include "support/golden.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

RouterLossGradient gradient_alone(const RouterStatistics& s, double aux, double z) {
  return router_loss_gradient(0, s, s.chosen(), s.chosen(), {}, aux, z);
}

TEST(RouterLosses, AreZeroWithoutTokens) {
  Routing routing;
  route(Matrix(0, 4), softmax_router(4, 2), routing);
  for (const BalanceOver over :
       {BalanceOver::kMicroBatch, BalanceOver::kSequence, BalanceOver::kGlobalBatch}) {
    RouterStatistics statistics(1, 4);
    statistics.add(0, routing, {}, over == BalanceOver::kSequence ? 3 : 0);
    EXPECT_EQ(aux_loss(statistics, {.pooled = false, .over = over}), 0);
    EXPECT_EQ(z_loss(statistics), 0);
    EXPECT_TRUE(gradient_alone(statistics, 1, 1).empty());
  }
}

TEST(RouterLosses, OfASigmoidBalanceItsScoresOverTheirSum) {
  const RouterSettings settings{.num_experts = 6, .top_k = 2, .score = RouterScore::kSigmoid};
  Routing routing;
  route(random_matrix(9, 6, 5), softmax_router(6, 2), routing);
  route(random_matrix(9, 6, 5), settings, routing);  // nothing of the softmax stays
  RouterStatistics statistics(1, 6);
  statistics.add(0, routing, std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 1, 1, 0});
  const auto chosen = statistics.chosen(0);
  EXPECT_EQ(std::reduce(chosen.begin(), chosen.end()), 16);
  EXPECT_EQ(statistics.chosen().tokens, 8);
  double expected = 0;
  for (Index e = 0; e < 6; ++e) {
    double probability = 0;
    for (Index t = 0; t < 8; ++t) {
      const float* s = routing.scores.row(t);
      probability += s[e] / std::accumulate(s, s + 6, 0.0) / 8;
    }
    expected += 6 * static_cast<double>(chosen[at(e)]) / 8 * probability;
  }
  EXPECT_NEAR(aux_loss(statistics), expected, 1e-12);
  EXPECT_EQ(z_loss(statistics), 0);
  const std::vector<float> d_weights(18);
  Matrix d_logits(9, 6);
  EXPECT_THROW(route_backward(routing, settings, d_weights, gradient_alone(statistics, 0, 1), {}, d_logits),
               ShapeError);
}

TEST(RouterLosses, AuxLossIsTopKAtPerfectBalance) {
  Matrix logits(8, 8);
  for (Index t = 0; t < 8; ++t) logits.view()(t, t) = logits.view()(t, (t + 1) % 8) = 3;
  Routing routing;
  route(logits, softmax_router(8, 2), routing);
  RouterStatistics statistics(1, 8);
  statistics.add(0, routing, {});
  EXPECT_NEAR(aux_loss(statistics), 2.0, 1e-6);
}

TEST(RouterLosses, SeeInEachLayerWhatJoinedLayersHide) {
  // One layer's tokens all go to expert 0, the other's to expert 1: together they look even.
  RouterStatistics statistics(2, 2);
  for (Index layer = 0; layer < 2; ++layer) {
    Matrix logits(4, 2);
    for (Index t = 0; t < 4; ++t) logits.row(t)[layer] = 30;
    Routing routing;
    route(logits, softmax_router(2, 1), routing);
    statistics.add(layer, routing, {});
  }
  EXPECT_NEAR(aux_loss(statistics, {.pooled = true}), 1, 1e-6);
  EXPECT_NEAR(aux_loss(statistics, {.pooled = false}), 2, 1e-6);
}

/// Twelve tokens of two layers, dealt to ranks and micro-batches in whole sequences of two.
struct Dealt {
  static constexpr Index kTokens = 12, kExperts = 6, kLayers = 2, kSequence = 2;
  std::vector<Matrix> logits;
  std::vector<std::vector<Routing>> routings;  // [micro-batch][layer], of this rank
  std::vector<RouterStatistics> statistics;    // [micro-batch]

  Dealt(Index ranks, Index rank, Index micro_batches) {
    for (Index layer = 0; layer < kLayers; ++layer)
      logits.push_back(random_matrix(kTokens, kExperts, 21 + static_cast<std::uint64_t>(layer)));
    const Index each = kTokens / (ranks * micro_batches);
    for (Index m = 0; m < micro_batches; ++m) {
      routings.emplace_back(at(kLayers));
      statistics.emplace_back(kLayers, kExperts);
      for (Index layer = 0; layer < kLayers; ++layer) {
        Routing& routing = routings.back()[at(layer)];
        route(logits[at(layer)].view().rows_from((rank * micro_batches + m) * each, each),
              softmax_router(kExperts, 2), routing);
        statistics.back().add(layer, routing, {}, kSequence);
      }
    }
  }
};

TEST(RouterLosses, AreTheSameHoweverTokensAreDealtToRanksAndMicroBatches) {
  const Communicator world = Communicator::world();
  for (const BalanceSettings& balance :
       {BalanceSettings{true, BalanceOver::kMicroBatch}, BalanceSettings{false, BalanceOver::kMicroBatch},
        BalanceSettings{false, BalanceOver::kSequence}, BalanceSettings{true, BalanceOver::kGlobalBatch},
        BalanceSettings{false, BalanceOver::kGlobalBatch}}) {
    Dealt whole(1, 0, 1);
    const double expected = aux_loss(whole.statistics[0], balance);
    for (const Index micro_batches : {1, 3}) {
      // 12 tokens divide over ranks and micro-batches, but a sequence of two does not be split.
      if (Dealt::kTokens / (world.size() * micro_batches) < Dealt::kSequence ||
          Dealt::kTokens % (world.size() * micro_batches * Dealt::kSequence) != 0)
        continue;
      // f of each micro-batch by itself is another loss.
      if (balance.over == BalanceOver::kMicroBatch && micro_batches > 1) continue;
      Dealt mine(world.size(), world.rank(), micro_batches);
      ChosenCounts step;
      std::vector<RouterStatistics> summed = mine.statistics;
      for (RouterStatistics& s : summed) {
        s.sum_over(world);
        step.add(s.chosen());
      }
      double loss = 0;
      for (Index m = 0; m < micro_batches; ++m)
        loss += aux_loss(summed[at(m)],
                         balance.over == BalanceOver::kGlobalBatch ? step : summed[at(m)].chosen(), balance) /
                static_cast<double>(micro_batches);
      EXPECT_NEAR(loss, expected, 1e-12);
      for (Index m = 0; m < micro_batches; ++m)
        for (Index layer = 0; layer < Dealt::kLayers; ++layer) {
          const RouterLossGradient part =
              router_loss_gradient(layer, mine.statistics[at(m)], summed[at(m)].chosen(),
                                   balance.over == BalanceOver::kGlobalBatch ? step : summed[at(m)].chosen(),
                                   balance, 1.0 / static_cast<double>(micro_batches), 0);
          const RouterLossGradient all =
              router_loss_gradient(layer, whole.statistics[0], whole.statistics[0].chosen(),
                                   whole.statistics[0].chosen(), balance, 1, 0);
          const Index first_sequence = (world.rank() * micro_batches + m) * part.tokens_per_row == 0
                                           ? 0
                                           : (world.rank() * micro_batches + m) *
                                                 (Dealt::kTokens / (world.size() * micro_batches)) /
                                                 Dealt::kSequence;
          const Index first = balance.over == BalanceOver::kSequence ? first_sequence * Dealt::kExperts : 0;
          for (std::size_t i = 0; i < part.d_probability.size(); ++i)
            EXPECT_NEAR(part.d_probability[i], all.d_probability[at(first) + i], 1e-9);
        }
    }
  }
}

TEST(RouterLosses, HaveTheGradientsOfTheirValues) {
  // f is constant: the difference is taken with the choices of the first forward.
  for (const BalanceSettings& balance :
       {BalanceSettings{true, BalanceOver::kMicroBatch}, BalanceSettings{false, BalanceOver::kMicroBatch},
        BalanceSettings{false, BalanceOver::kSequence}}) {
    const Dealt dealt(1, 0, 1);
    const RouterSettings settings = softmax_router(Dealt::kExperts, 2);
    const RouterStatistics& statistics = dealt.statistics[0];
    const auto loss_with = [&](Index layer, const Matrix& logits) {
      RouterStatistics moved(Dealt::kLayers, Dealt::kExperts);
      for (Index l = 0; l < Dealt::kLayers; ++l) {
        Routing routing;
        const Matrix& x = l == layer ? logits : dealt.logits[at(l)];
        score(x, settings, routing);
        routing.top_k = 2;
        routing.topk_idx = dealt.routings[0][at(l)].topk_idx;
        weigh(x, settings, routing);
        moved.add(l, routing, {}, Dealt::kSequence);
      }
      return aux_loss(moved, balance);
    };
    for (Index layer = 0; layer < Dealt::kLayers; ++layer) {
      const Routing& routing = dealt.routings[0][at(layer)];
      const std::vector<float> no_weights(routing.topk_idx.size());
      Matrix d_logits(Dealt::kTokens, Dealt::kExperts);
      route_backward(
          routing, settings, no_weights,
          router_loss_gradient(layer, statistics, statistics.chosen(), statistics.chosen(), balance, 1, 0),
          {}, d_logits);
      Matrix x = Matrix::copy_of(dealt.logits[at(layer)]);
      for (Index i = 0; i < x.view().size(); ++i) {
        const float at = x.view().data[i];
        const float step = 1e-2f;
        x.view().data[i] = at + step;
        const double above = loss_with(layer, x);
        x.view().data[i] = at - step;
        const double below = loss_with(layer, x);
        x.view().data[i] = at;
        // fp32 probabilities, 1e-7 of values of 0.1, over a difference of 2e-2, and its cubic term.
        EXPECT_NEAR(d_logits.view().data[i], (above - below) / (2 * step), 2e-5) << "element " << i;
      }
    }
  }
}

/// 5 and 3 of 8 tokens: what is a mean over the step has the gradients of one batch; a mean of the
/// micro-batches' own losses has not.
TEST(RouterLosses, OverTheStepHaveTheSameGradientsHoweverUnequalItsMicroBatches) {
  const Matrix logits = random_matrix(8, 6, 5);
  const auto statistics_of = [&](Index begin, Index end) {
    Routing routing;
    route(logits.view().rows_from(begin, end - begin), softmax_router(6, 2), routing);
    RouterStatistics statistics(1, 6);
    statistics.add(0, routing, {});
    return statistics;
  };
  const RouterStatistics whole = statistics_of(0, 8);
  for (const BalanceOver over : {BalanceOver::kGlobalBatch, BalanceOver::kMicroBatch}) {
    const BalanceSettings balance{.pooled = false, .over = over};
    const RouterLossGradient all =
        router_loss_gradient(0, whole, whole.chosen(), whole.chosen(), balance, 1, 1);
    for (const auto& [begin, end] : {std::pair<Index, Index>{0, 5}, {5, 8}}) {
      const RouterStatistics s = statistics_of(begin, end);
      const ChosenCounts& f = over == BalanceOver::kGlobalBatch ? whole.chosen() : s.chosen();
      const RouterLossGradient part =
          router_loss_gradient(0, s, s.chosen(), f, balance, 1, 1, {.micro_batches = 2, .tokens = 8});
      EXPECT_EQ(part.d_log_sum_exp, all.d_log_sum_exp);
      if (over == BalanceOver::kGlobalBatch) {
        EXPECT_EQ(part.d_probability, all.d_probability);
      } else {
        const RouterLossGradient alone = router_loss_gradient(0, s, s.chosen(), s.chosen(), balance, 1, 1);
        for (std::size_t e = 0; e < 6; ++e)
          EXPECT_NEAR(part.d_probability[e], alone.d_probability[e] / 2, 1e-8);
      }
    }
  }
}

TEST(RouterLosses, RefuseSequencesOfJoinedLayers) {
  Violations violations;
  check_balance({.pooled = true, .over = BalanceOver::kSequence}, violations);
  EXPECT_EQ(violations.list().size(), 1u);
}

TEST(RouterLosses, AuxLossAndItsGradientAgreeWithGolden) {
  const auto cases = testing::golden_cases("blocks", testing::read_by("RouterLosses"));
  ASSERT_FALSE(cases.empty());
  for (const auto& folder : cases) {
    const SafetensorsFile block(folder / "block.safetensors");
    const Document config = Document::read(folder / "meta.json").object("config");
    const Index experts = config.integer("num_experts");
    const RouterSettings settings = softmax_router(experts, config.integer("num_experts_per_tok"));
    const Index layers = config.integer("num_layers");
    std::vector<std::uint8_t> is_real;
    if (block.has("input.attention_mask"))
      for (const std::int64_t mask : block.integers("input.attention_mask"))
        is_real.push_back(static_cast<std::uint8_t>(mask));
    std::vector<Routing> routings(static_cast<std::size_t>(layers));
    RouterStatistics statistics(layers, experts);
    for (Index l = 0; l < layers; ++l) {
      auto logits = block.floats("input.router_logits." + std::to_string(l));
      const ConstMatrixView view(logits.data(), static_cast<Index>(logits.size()) / experts, experts);
      route(view, settings, routings[static_cast<std::size_t>(l)]);
      statistics.add(l, routings[static_cast<std::size_t>(l)], is_real);
    }
    const double expected = testing::doubles_in(block, "output").front();
    EXPECT_NEAR(aux_loss(statistics), expected, 2e-6 * std::abs(expected)) << folder;
    const double upstream = testing::doubles_in(block, "upstream_grad.output").front();
    for (Index l = 0; l < layers; ++l) {
      const Routing& routing = routings[static_cast<std::size_t>(l)];
      const std::vector<float> no_weights(routing.topk_idx.size());
      Matrix d_logits(routing.tokens(), experts);
      route_backward(routing, settings, no_weights, gradient_alone(statistics, upstream, 0), is_real,
                     d_logits);
      EXPECT_LE(testing::golden_error(d_logits.view().flat(),
                                      block.floats("grad.input.router_logits." + std::to_string(l)),
                                      testing::kBlockFloor),
                2e-5)
          << folder << " layer " << l;
    }
  }
}

}  // namespace
}  // namespace moeloom
