#include "moeloom/moe/router_losses.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>
#include <numeric>

#include "support/golden.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

TEST(RouterLosses, AreZeroWithoutTokens) {
  Routing routing;
  route(Matrix(0, 4), {4, 2, true}, routing);
  RouterStatistics statistics(4);
  statistics.add(routing, 2, {});
  EXPECT_EQ(statistics.aux_loss(), 0);
  EXPECT_EQ(statistics.z_loss(), 0);
  EXPECT_TRUE(router_loss_gradient(statistics, 1, 1).d_probability.empty());
}

TEST(RouterLosses, CountsExpertsOfASigmoidButHasNoLossesOfIt) {
  const RouterSettings settings{.num_experts = 6, .top_k = 2, .score = RouterScore::kSigmoid};
  Routing routing;
  route(random_matrix(9, 6, 5), {6, 2, true}, routing);
  route(random_matrix(9, 6, 5), settings, routing);  // nothing of the softmax stays
  RouterStatistics statistics(6);
  statistics.add(routing, 2, std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 1, 1, 0});
  EXPECT_EQ(std::reduce(statistics.tokens_per_expert.begin(), statistics.tokens_per_expert.end()), 16);
  EXPECT_EQ(statistics.tokens, 8);
  EXPECT_EQ(statistics.aux_loss(), 0);
  EXPECT_EQ(statistics.z_loss(), 0);
  const std::vector<float> d_weights(18);
  Matrix d_logits(9, 6);
  EXPECT_THROW(
      route_backward(routing, settings, d_weights, router_loss_gradient(statistics, 1, 0), {}, d_logits),
      ShapeError);
}

TEST(RouterLosses, AuxLossIsTopKAtPerfectBalance) {
  Matrix logits(8, 8);
  for (Index t = 0; t < 8; ++t) logits.view()(t, t) = logits.view()(t, (t + 1) % 8) = 3;
  Routing routing;
  route(logits, {8, 2, true}, routing);
  RouterStatistics statistics(8);
  statistics.add(routing, 2, {});
  EXPECT_NEAR(statistics.aux_loss(), 2.0, 1e-6);
}

TEST(RouterLosses, StatisticsAreTheSameHoweverTokensAreDealtToRanks) {
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

TEST(RouterLosses, AuxLossAndItsGradientAgreeWithGolden) {
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
    const double expected = testing::doubles_in(block, "output").front();
    EXPECT_NEAR(statistics.aux_loss(), expected, 2e-6 * std::abs(expected)) << folder;
    const double upstream = testing::doubles_in(block, "upstream_grad.output").front();
    for (Index l = 0; l < layers; ++l) {
      const Routing& routing = routings[static_cast<std::size_t>(l)];
      const std::vector<float> no_weights(routing.topk_idx.size());
      Matrix d_logits(routing.tokens(), experts);
      route_backward(routing, settings, no_weights, router_loss_gradient(statistics, upstream, 0), is_real,
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
