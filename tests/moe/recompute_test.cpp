// A layer whose backward makes the experts' activations again against the same layer that keeps them.
#include "moeloom/job/recompute.hpp"

#include "moeloom/comm/mesh.hpp"

#include "moe_block.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Block;
using testing::BlockWeights;
using testing::random_matrix;
using testing::RandomBlock;
using testing::stretch;

constexpr Index kExperts = 8, kTopK = 2, kTokens = 70, kHidden = 24;

/// Tokens that the same experts like, so that a rank has many rows and another none.
Matrix uneven_tokens() {
  Matrix tokens = random_matrix(kTokens, kHidden, 38);
  for (Index t = 0; t < kTokens; t += 2) copy(tokens.view().rows_from(0, 1), tokens.view().rows_from(t, 1));
  return tokens;
}

void expect_same_bits(const Block& again, const Block& kept) {
  const auto same = [](ConstMatrixView got, ConstMatrixView expected, const char* what) {
    EXPECT_TRUE(std::ranges::equal(got.flat(), expected.flat())) << what;
  };
  same(again.output, kept.output, "output");
  same(again.d_hidden, kept.d_hidden, "d_hidden");
  const BlockWeights &got = again.gradients(), &expected = kept.gradients();
  same(got.router, expected.router, "router");
  same(got.gate_up, expected.gate_up, "gate_up");
  same(got.down, expected.down, "down");
  same(got.shared_gate_up, expected.shared_gate_up, "shared_gate_up");
  same(got.shared_down, expected.shared_down, "shared_down");
  same(got.shared_gate, expected.shared_gate, "shared_gate");
  same(got.gate_up_bias, expected.gate_up_bias, "gate_up_bias");
  same(got.down_bias, expected.down_bias, "down_bias");
}

struct Way {
  std::string name;
  DispatcherSettings settings;
};

/// Every way in which rows travel and experts run.
std::vector<Way> all_ways(const Communicator& ep) {
  std::vector<Way> ways;
  for (const DispatcherKind kind : kDispatcherKinds)
    ways.push_back({std::string(name_of(kind)), open_dispatcher(kind, ep, kExperts)});
  ways.push_back({"alltoall in 3 chunks", {.chunks = 3}});
  Way moved{"replicas", open_dispatcher(DispatcherKind::kShared, ep, kExperts)};
  moved.settings.rebalance = {.row_products = 3000, .on_node = {1, 0}, .between_nodes = {2, 0}};
  ways.push_back(moved);
  return ways;
}

class RecomputedLayer : public ::testing::TestWithParam<bool> {};

TEST_P(RecomputedLayer, HasTheSameBitsByEveryWayAndKeepsNothing) {
  const bool grouped = GetParam();
  const Communicator world = Communicator::world();
  const Communicator ep = testing::largest_ep(world, kExperts);
  const Matrix hidden = uneven_tokens(), upstream = random_matrix(kTokens, kHidden, 39);
  for (const RandomBlock& shape : {RandomBlock{kHidden, 20}, RandomBlock{kHidden, 20, 12, true},
                                   RandomBlock{kHidden, 20, 12, true, {}, true}})
    for (const auto& [name, settings] : all_ways(ep))
      for (const Index budget : {Index{0}, Index{25}}) {
        SCOPED_TRACE(name + ", row budget " + std::to_string(budget));
        RouterSettings router = softmax_router(kExperts, kTopK);
        router.weight_on_input = shape.biases;  // where a backward changes the rows that it read
        const BlockWeights weights = shape.weights(kExperts, 31);
        Block kept(ep, router, weights, testing::block_kernels(grouped), {}, settings);
        Block again(ep, router, weights, testing::block_kernels(grouped), {}, settings);
        again.recompute = true;
        for (Block* block : {&kept, &again}) {
          block->row_budget = budget;
          for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
            block->run(stretch(hidden, ep), stretch(upstream, ep));
        }
        expect_same_bits(again, kept);
        EXPECT_EQ(again.rows_held(), 0) << "no layer keeps them";
        Index rows = kept.rows_held();
        ep.all_sum(std::span(&rows, 1));
        EXPECT_GT(rows, 0);
      }
}

INSTANTIATE_TEST_SUITE_P(Of, RecomputedLayer, ::testing::Bool(),
                         [](const auto& named) { return named.param ? "GroupedMatmul" : "TheLoop"; });

TEST(Recompute, HasNames) {
  EXPECT_EQ(name_of(Recompute::kNone), "none");
  EXPECT_EQ(name_of(Recompute::kExperts), "experts");
  EXPECT_EQ(name_of(Recompute::kBlock), "block");
  EXPECT_EQ(kRecomputes.size(), 3u);
}

}  // namespace
}  // namespace moeloom
