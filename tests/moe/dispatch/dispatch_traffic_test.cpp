// Bytes between nodes, counted: what each way sends against one copy of a row for each expert.
#include "moe/dispatch/dispatch_traffic.hpp"

#include "moe/dispatch/dispatcher.hpp"

#include "dispatch/trips.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kExperts = 64, kTopK = 8, kTokens = 200, kHidden = 512;
constexpr Index kRowBytes = kHidden * static_cast<Index>(sizeof(float));

struct Directions {
  double out = 0, back = 0;  // bytes to other nodes over a copy a slot whose expert is there, of all ranks
};

double ratio_of_all(const Communicator& ep, std::int64_t network_bytes, Index copies) {
  std::vector<std::int64_t> sums = {network_bytes, copies};
  ep.all_sum(sums);
  return static_cast<double>(sums[0]) / static_cast<double>(sums[1] * kRowBytes);
}

/// Of per_rank [ranks], what is for ranks on other nodes than `rank`. No nodes: all ranks are on one.
Index sum_off_node(const NodeMap& nodes, Index rank, std::span<const Index> per_rank) {
  Index sum = 0;
  if (nodes.nodes() > 1)
    for (Index other = 0; other < std::ssize(per_rank); ++other)
      if (!nodes.same_node(rank, other)) sum += per_rank[at(other)];
  return sum;
}

Directions ratios(DispatcherKind kind, const WireSettings& wire) {
  const Communicator ep = Communicator::world();
  const DispatcherSettings settings = open_dispatcher(kind, ep, kExperts, wire);
  Dispatcher dispatcher(ep, kExperts, settings);
  const auto seed = static_cast<std::uint64_t>(ep.rank());
  const Matrix tokens = testing::random_matrix(kTokens, kHidden, seed);
  const std::vector<float> slots(at(kTokens * kTopK), 1.0f);
  std::vector<float> row_scalars, slot_scalars;
  Matrix sums(kTokens, kHidden);
  DispatchPlan plan;
  RowBuffer rows, results;
  dispatcher.plan(testing::random_choices(kTokens, kTopK, kExperts, seed), kTopK, plan);
  row_scalars.resize(at(plan.rows()));  // before the trip says where they are
  std::int64_t out = 0;                 // with what the plan cost
  testing::travel(dispatcher,
                  {.plan = plan,
                   .tokens = tokens,
                   .rows = rows,
                   .scalars_out = ScalarsOut{slots, row_scalars},
                   .results = results,
                   .sums = sums,
                   .scalars_back = ScalarsBack{row_scalars, slot_scalars}},
                  [&](Index) { out = dispatcher.traffic().network_bytes; });
  const std::int64_t back = dispatcher.traffic().network_bytes - out;
  return {.out = ratio_of_all(ep, out, sum_off_node(settings.nodes, ep.rank(), plan.sent_per_rank)),
          .back = ratio_of_all(ep, back, sum_off_node(settings.nodes, ep.rank(), plan.received_per_rank))};
}

TEST(DispatchTraffic, ATokenCrossesOncePerNode) {
  if (Communicator::world().size() % 2 != 0) GTEST_SKIP() << "two nodes of unequal size";
  // 64 experts on 2 nodes, 8 a token: 4 copies for the other node in the mean, and one row of 0.998 tokens.
  const Directions exact = ratios(DispatcherKind::kHierarchical, {.pretended_nodes = 2});
  EXPECT_LT(exact.out, 0.26);
  EXPECT_GT(exact.out, 0.25);   // 0.2495 of rows, and beside each slot its number and its place
  EXPECT_LT(exact.back, 0.92);  // the slots that open a sum return as one
  const Directions fast =
      ratios(DispatcherKind::kHierarchical, {.combine = CombineMode::kFast, .pretended_nodes = 2});
  EXPECT_DOUBLE_EQ(fast.out, exact.out);
  EXPECT_LT(fast.back, 0.26);
  const Directions bf16 =
      ratios(DispatcherKind::kHierarchical,
             {.combine = CombineMode::kFast, .dtype = WireDType::kBf16, .pretended_nodes = 2});
  EXPECT_LT(bf16.out, 0.14);
  EXPECT_LT(bf16.back, 0.14);
}

TEST(DispatchTraffic, ATokenCrossesOncePerNodeInChunksToo) {
  const Communicator ep = Communicator::world();
  constexpr Index kFew = 6;
  const auto chosen = testing::random_choices(kTokens, kFew, kExperts, static_cast<std::uint64_t>(ep.rank()));
  const auto bytes = [&](const WireSettings& wire, Index chunks) {
    DispatcherSettings settings = open_dispatcher(DispatcherKind::kHierarchical, ep, kExperts, wire);
    settings.chunks = chunks;
    Dispatcher dispatcher(ep, kExperts, settings);
    DispatchPlan plan;
    RowBuffer rows;
    dispatcher.plan(chosen, kFew, plan);
    testing::bring_rows(dispatcher, plan, Matrix(kTokens, kHidden), rows);
    return dispatcher.traffic().network_bytes;
  };
  for (const CombineMode mode : {CombineMode::kExact, CombineMode::kFast})
    for (const Index nodes : {2, 3}) {
      const WireSettings wire{.combine = mode, .pretended_nodes = nodes};
      for (const Index chunks : {1, 3}) EXPECT_EQ(bytes(wire, chunks), bytes(wire, 0)) << chunks;
    }
}

TEST(DispatchTraffic, AlltoallSendsACopyASlot) {
  const Index ranks = Communicator::world().size();
  if (ranks < 2) GTEST_SKIP() << "one rank is one node";
  const Directions alltoall = ratios(DispatcherKind::kAlltoall, {.pretended_nodes = 2});
  const double with_numbers = 1 + 1.0 / kHidden;
  EXPECT_DOUBLE_EQ(alltoall.out, with_numbers);
  EXPECT_DOUBLE_EQ(alltoall.back, with_numbers);
  const Directions narrow =
      ratios(DispatcherKind::kAlltoall, {.dtype = WireDType::kBf16, .pretended_nodes = 2});
  EXPECT_DOUBLE_EQ(narrow.out, with_numbers - 0.5);
}

/// One fp32 copy for each chosen expert of another rank, out and back, however rows travel: so the same
/// number where nothing leaves a node.
TEST(DispatchTraffic, RowBytesAreCopiesForExpertsOfOtherRanksWhateverTheWay) {
  const Communicator ep = Communicator::world();
  for (const DispatcherKind kind : kDispatcherKinds)
    for (const Index pretended : {1, 2})
      for (const Index chunks : {0, 3}) {
        DispatcherSettings settings = open_dispatcher(kind, ep, kExperts, {.pretended_nodes = pretended});
        settings.chunks = chunks;
        Dispatcher dispatcher(ep, kExperts, settings);
        DispatchPlan plan;
        RowBuffer rows;
        dispatcher.plan(testing::random_choices(9 + ep.rank(), 2, kExperts, 1), 2, plan);
        EXPECT_EQ(dispatcher.traffic().row_bytes, 0) << name_of(kind);
        testing::bring_rows(dispatcher, plan, Matrix(9 + ep.rank(), kHidden), rows);
        const Index out = plan.slots() - plan.sent_per_rank[at(ep.rank())];
        const Index back = plan.rows() - plan.received_per_rank[at(ep.rank())];
        EXPECT_EQ(dispatcher.traffic().row_bytes, (out + back) * kRowBytes) << name_of(kind);
      }
}

TEST(DispatchTraffic, NothingCrossesOnOneNode) {
  for (const DispatcherKind kind : kDispatcherKinds) {
    const Communicator ep = Communicator::world();
    Dispatcher dispatcher(ep, kExperts, open_dispatcher(kind, ep, kExperts));
    DispatchPlan plan;
    RowBuffer rows;
    dispatcher.plan(testing::random_choices(9, 2, kExperts, 1), 2, plan);
    testing::bring_rows(dispatcher, plan, Matrix(9, 4), rows);
    EXPECT_EQ(dispatcher.traffic().network_bytes, 0) << name_of(kind);
  }
}

}  // namespace
}  // namespace moeloom
