#include "moeloom/moe/exchange_cost.hpp"

#include "moeloom/moe/dispatcher.hpp"

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// T = 10 tokens of D = 8 floats (320 bytes), K = 2 of E = 16 experts, on 4 ranks.
ExchangeCase four_ranks(Index on_node) {
  return {.tokens = 10, .hidden = 8, .top_k = 2, .num_experts = 16, .ep = 4, .ep_on_node = on_node};
}

TEST(ExchangeCost, GroupsVisitedAreThoseOfDrawingWithoutReplacement) {
  EXPECT_DOUBLE_EQ(groups_visited(8, 2, 1), 1);
  EXPECT_DOUBLE_EQ(groups_visited(8, 1, 4), 1);
  EXPECT_DOUBLE_EQ(groups_visited(4, 2, 2), 2 * (1 - 1.0 / 6));  // C(2,2) / C(4,2)
  EXPECT_DOUBLE_EQ(groups_visited(8, 8, 4), 4);
  EXPECT_NEAR(64.0 / 8 / groups_visited(64, 8, 8), 1.47, 0.01) << "a token's 8 choices on 8 ranks";
}

TEST(ExchangeCost, AlltoallSendsEverySlotThatIsNotAtHomeAndPassesOverThemTwice) {
  const ExchangeVolume near = exchange_volume(ExchangeWay::kAlltoall, four_ranks(4));
  EXPECT_DOUBLE_EQ(near.node_bytes, 2 * 320 * 3 / 4.0);
  EXPECT_EQ(near.network_bytes, 0);
  EXPECT_EQ(near.node_messages, 3);
  EXPECT_DOUBLE_EQ(near.copied_bytes, 4 * 640);
  const ExchangeVolume far = exchange_volume(ExchangeWay::kAlltoall, four_ranks(2));
  EXPECT_DOUBLE_EQ(far.node_bytes, 640 / 4.0);
  EXPECT_DOUBLE_EQ(far.network_bytes, 640 * 2 / 4.0);
  EXPECT_EQ(far.node_messages, 1);
  EXPECT_EQ(far.network_messages, 2);
}

TEST(ExchangeCost, SharedSendsNothingAndNeedsOneNode) {
  const ExchangeVolume volume = exchange_volume(ExchangeWay::kShared, four_ranks(4));
  EXPECT_EQ(volume.node_bytes + volume.network_bytes, 0);
  EXPECT_DOUBLE_EQ(volume.copied_bytes, 320 + 640);
  EXPECT_EQ(volume.meetings, 2);
  EXPECT_TRUE(can_run(ExchangeWay::kShared, four_ranks(4)));
  EXPECT_FALSE(can_run(ExchangeWay::kShared, four_ranks(2)));
}

TEST(ExchangeCost, HierarchicalCrossesOnceANode) {
  const ExchangeVolume volume = exchange_volume(ExchangeWay::kHierarchical, four_ranks(2));
  const double nodes = 2 * (1 - 8.0 * 7 / (16 * 15));
  EXPECT_DOUBLE_EQ(volume.network_bytes, nodes * 320 / 2);
  EXPECT_EQ(volume.network_messages, 1);
  EXPECT_LT(volume.network_bytes, exchange_volume(ExchangeWay::kAlltoall, four_ranks(2)).network_bytes);
}

TEST(ExchangeCost, AllgatherSendsEveryTokenToEveryRank) {
  const ExchangeVolume volume = exchange_volume(ExchangeWay::kAllgather, four_ranks(2));
  EXPECT_DOUBLE_EQ(volume.node_bytes, 320);
  EXPECT_DOUBLE_EQ(volume.network_bytes, 2 * 320);
}

TEST(ExchangeCost, OneRankMovesItsRowsToItselfAlone) {
  ExchangeCase alone = four_ranks(1);
  alone.ep = 1;
  for (const ExchangeWay way : kExchangeWays) {
    const ExchangeVolume volume = exchange_volume(way, alone);
    EXPECT_EQ(volume.node_bytes + volume.network_bytes + volume.node_messages + volume.meetings, 0);
    EXPECT_DOUBLE_EQ(volume.copied_bytes, 2 * 640);
  }
  EXPECT_EQ(count_bytes(alone), 0);
}

TEST(ExchangeCost, SecondsAddUpEachTerm) {
  const ExchangeVolume volume{.node_bytes = 100,
                              .network_bytes = 50,
                              .node_messages = 3,
                              .network_messages = 2,
                              .copied_bytes = 40,
                              .meetings = 5};
  const ExchangeRates rates{.node_message_seconds = 0.1,
                            .node_bandwidth = 10,
                            .network_message_seconds = 1,
                            .network_bandwidth = 25,
                            .copy_bandwidth = 20,
                            .meeting_seconds = 0.01};
  EXPECT_DOUBLE_EQ(exchange_seconds(volume, rates, 4), 0.3 + 2 + 10 + 8 + 2 + 0.05);
  EXPECT_DOUBLE_EQ(exchange_seconds({.copied_bytes = 40}, {.copy_bandwidth = 20}, 4), 2)
      << "a link that carries nothing needs no rate";
}

/// Every token to one expert of as many ranks as it has choices, by turns: even on every pair of ranks.
std::vector<std::int32_t> even_choices(Index tokens, Index top_k, Index experts) {
  std::vector<std::int32_t> chosen;
  for (Index slot = 0; slot < tokens * top_k; ++slot)
    chosen.push_back(static_cast<std::int32_t>(slot % experts));
  return chosen;
}

TEST(ExchangeCost, BytesAreThoseThatTheDispatcherCounts) {
  const Communicator world = Communicator::world();
  const auto ranks = static_cast<Index>(world.size());
  const ExchangeCase exchange{.tokens = 12 * ranks,
                              .hidden = 16,
                              .top_k = 2,
                              .num_experts = 2 * ranks,
                              .ep = ranks,
                              .ep_on_node = ranks};
  const auto chosen = even_choices(exchange.tokens, exchange.top_k, exchange.num_experts);
  const Matrix tokens = testing::random_matrix(exchange.tokens, exchange.hidden, 1);
  for (const auto& [kind, way] : {std::pair(DispatcherKind::kAlltoall, ExchangeWay::kAlltoall),
                                  std::pair(DispatcherKind::kShared, ExchangeWay::kShared)}) {
    EXPECT_EQ(name_of(kind), name_of(way));
    Dispatcher dispatcher(world, exchange.num_experts, open_dispatcher(kind, world, exchange.num_experts));
    DispatchPlan plan;
    RowBuffer rows, outputs;
    const std::int64_t before = world.traffic().bytes_sent;
    dispatcher.plan(chosen, exchange.top_k, plan);
    const std::int64_t planned = world.traffic().bytes_sent;
    dispatcher.dispatch(plan, tokens, rows);
    const std::int64_t dispatched = world.traffic().bytes_sent;
    dispatcher.prepare(outputs, plan.rows(), exchange.hidden);
    fill(outputs, 1.0f);
    Matrix back(exchange.tokens, exchange.hidden);
    dispatcher.combine(plan, outputs, back, Write::kReplace);
    const std::int64_t combined = world.traffic().bytes_sent;
    const double one_way = exchange_volume(way, exchange).node_bytes;
    const double counts = kind == DispatcherKind::kShared ? 0 : count_bytes(exchange);
    EXPECT_DOUBLE_EQ(static_cast<double>(planned - before), counts) << name_of(kind);
    EXPECT_DOUBLE_EQ(static_cast<double>(dispatched - planned), one_way) << name_of(kind);
    EXPECT_DOUBLE_EQ(static_cast<double>(combined - dispatched), one_way) << name_of(kind);
  }
}

}  // namespace
}  // namespace moeloom
