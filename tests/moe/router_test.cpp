#include "moeloom/moe/router.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>
#include <limits>
#include <set>

#include "support/golden.hpp"
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
      const auto p = [&](Index j) {
        const auto slot = static_cast<std::size_t>(t * k + j);
        return std::exp(logits[static_cast<std::size_t>(t * experts + chosen[slot])]) / sum;
      };
      for (Index j = 0; j < k; ++j) picked += p(j);
      for (Index j = 0; j < k; ++j) {
        total +=
            upstream[static_cast<std::size_t>(t * k + j)] * p(j) / (settings.norm_topk_prob ? picked : 1.0);
        share[static_cast<std::size_t>(chosen[static_cast<std::size_t>(t * k + j)])] += 1;
      }
    }
    const auto n = static_cast<double>(tokens);
    for (std::size_t e = 0; e < mean.size(); ++e)
      total += aux * static_cast<double>(experts) * share[e] / n * mean[e] / n;
    return total + z * squares / n;
  }
};

TEST(Router, GivesANaNLogitsTokenDifferentExpertsAndLeavesOthersAlone) {
  for (const Index k : {1, 2, 4})
    for (Index bad = 0; bad < 4; ++bad) {
      Matrix logits = random_matrix(3, 4, 5);
      Routing healthy, routing;
      route(logits, {4, k}, healthy);
      logits.row(1)[bad] = std::numeric_limits<float>::quiet_NaN();
      route(logits, {4, k}, routing);
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
    Index tokens, experts, top_k;
    bool normalise;
    double aux, z;
  };
  for (const Case& c : {Case{5, 4, 2, true, 0, 0}, Case{5, 4, 2, false, 0, 0}, Case{7, 6, 3, true, 0.5, 0.1},
                        Case{1, 3, 1, false, 0.5, 0}, Case{4, 3, 3, true, 0, 1}, Case{6, 1, 1, true, 1, 1}}) {
    const RouterSettings settings{c.experts, c.top_k, c.normalise};
    const Matrix logits = random_matrix(c.tokens, c.experts, 11);
    const Matrix upstream = random_matrix(c.tokens, c.top_k, 12);
    Routing routing;
    route(logits, settings, routing);
    RouterStatistics statistics(c.experts);
    statistics.add(routing, c.top_k, {});
    Matrix d_logits(c.tokens, c.experts);
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
  RouterStatistics statistics(4);
  statistics.add(routing, 2, {});
  EXPECT_EQ(statistics.aux_loss(), 0);
  EXPECT_EQ(statistics.z_loss(), 0);
  EXPECT_TRUE(router_loss_gradient(statistics, 1, 1).d_probability.empty());
}

TEST(Router, AuxLossIsTopKAtPerfectBalance) {
  Matrix logits(8, 8);
  for (Index t = 0; t < 8; ++t) logits.view()(t, t) = logits.view()(t, (t + 1) % 8) = 3;
  Routing routing;
  route(logits, {8, 2, true}, routing);
  RouterStatistics statistics(8);
  statistics.add(routing, 2, {});
  EXPECT_NEAR(statistics.aux_loss(), 2.0, 1e-6);
}

TEST(Router, StatisticsAreTheSameHoweverTokensAreDealtToRanks) {
  const Communicator world = Communicator::world();
  const Matrix logits = random_matrix(12, 6, 21);
  Routing all;
  route(logits, {6, 2, true}, all);
  RouterStatistics whole(6);
  whole.add(all, 2, {});
  const Index share = 12 / world.size();
  Routing mine;
  route(logits.view().rows_from(share * world.rank(), share), {6, 2, true}, mine);
  RouterStatistics summed(6);
  summed.add(mine, 2, {});
  summed.sum_over(world);
  EXPECT_EQ(summed.tokens_per_expert, whole.tokens_per_expert);
  EXPECT_EQ(summed.tokens, whole.tokens);
  EXPECT_NEAR(summed.aux_loss(), whole.aux_loss(), 1e-13);
  EXPECT_NEAR(summed.z_loss(), whole.z_loss(), 1e-13);
}

TEST(Router, AuxLossAndItsGradientAgreeWithGolden) {
  const auto cases = testing::golden_cases("blocks", testing::of_class({"load_balancing_loss_func"}));
  ASSERT_FALSE(cases.empty());
  for (const auto& folder : cases) {
    const SafetensorsFile block(folder / "block.safetensors");
    const Document config = Document::read(folder / "meta.json").object("config");
    const Index experts = config.integer("num_experts");
    const RouterSettings settings{experts, config.integer("num_experts_per_tok"), true};
    const Index layers = config.integer("num_layers");
    std::vector<std::uint8_t> is_real;
    if (block.has("input.attention_mask"))
      for (const std::int64_t mask : block.integers("input.attention_mask"))
        is_real.push_back(static_cast<std::uint8_t>(mask));
    std::vector<Routing> routings(static_cast<std::size_t>(layers));
    RouterStatistics statistics(experts);
    for (Index l = 0; l < layers; ++l) {
      auto logits = block.floats("input.router_logits." + std::to_string(l));
      const ConstMatrixView view(logits.data(), static_cast<Index>(logits.size()) / experts, experts);
      route(view, settings, routings[static_cast<std::size_t>(l)]);
      statistics.add(routings[static_cast<std::size_t>(l)], settings.top_k, is_real);
    }
    const double expected = block.doubles("output").front();
    EXPECT_NEAR(statistics.aux_loss(), expected, 2e-6 * std::abs(expected)) << folder;
    const double upstream = block.doubles("upstream_grad.output").front();
    for (Index l = 0; l < layers; ++l) {
      const Routing& routing = routings[static_cast<std::size_t>(l)];
      const std::vector<float> no_weights(routing.topk_idx.size());
      Matrix d_logits(routing.tokens(), experts);
      route_backward(routing, settings, no_weights, router_loss_gradient(statistics, upstream, 0), is_real,
                     d_logits);
      EXPECT_LE(testing::golden_error(d_logits.view().flat(),
                                      block.floats("grad.input.router_logits." + std::to_string(l)), 0.1),
                2e-5)
          << folder << " layer " << l;
    }
  }
}

}  // namespace
}  // namespace moeloom
