// A layer in slices against the same layer whole.
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

constexpr Index kExperts = 8, kTopK = 2, kTokens = 90;

enum class Load { kUsual, kOneExpertTakesAll, kOneRankTakesAll };

BlockWeights weights_of(Load load, const RandomBlock& shape) {
  BlockWeights weights = shape.weights(kExperts, 31);
  const Index next = load == Load::kOneRankTakesAll ? 2 : 4;  // what a token takes besides expert 3
  if (load != Load::kUsual)
    for (Index e = 0; e < kExperts; ++e)
      for (Index d = 0; d < shape.hidden; ++d)
        weights.router.row(e)[d] = e == 3 ? 4.0f : e == next ? 2.0f : 0.0f;
  return weights;
}

Matrix tokens_of(Load load, Index hidden) {
  Matrix tokens = random_matrix(kTokens, hidden, 38);
  if (load != Load::kUsual)
    for (float& value : tokens.view().flat()) value = std::abs(value);
  return tokens;
}

void expect_near(ConstMatrixView got, ConstMatrixView expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  for (Index i = 0; i < got.size(); ++i)  // sums of fp32 products of order 10 in another order
    EXPECT_NEAR(got.data[i], expected.data[i], 2e-4) << what << ' ' << i;
}

void expect_as_whole(Load load, const RandomBlock& shape, Index budget, DispatcherSettings dispatcher,
                     const Communicator& ep) {
  const BlockWeights weights = weights_of(load, shape);
  const Matrix hidden = tokens_of(load, shape.hidden), upstream = random_matrix(kTokens, shape.hidden, 39);
  RouterSettings router = softmax_router(kExperts, kTopK);
  router.weight_on_input = shape.biases;  // where a backward changes the rows that it read
  Block whole(ep, router, weights, testing::block_kernels(true), {}, dispatcher);
  Block sliced(ep, router, weights, testing::block_kernels(true), {}, dispatcher);
  sliced.row_budget = budget;
  for (Block* block : {&whole, &sliced}) block->run(stretch(hidden, ep), stretch(upstream, ep));
  EXPECT_EQ(whole.slices(), 1);
  EXPECT_GT(sliced.slices(), 1);
  for (Index i = 0; i < whole.output.view().size(); ++i)
    ASSERT_EQ(sliced.output.view().data[i], whole.output.view().data[i]) << "output " << i;
  for (Index i = 0; i < whole.d_hidden.view().size(); ++i)
    ASSERT_EQ(sliced.d_hidden.view().data[i], whole.d_hidden.view().data[i]) << "d_hidden " << i;
  expect_near(sliced.gradients().gate_up, whole.gradients().gate_up, "gate_up");
  expect_near(sliced.gradients().down, whole.gradients().down, "down");
  expect_near(sliced.gradients().gate_up_bias, whole.gradients().gate_up_bias, "gate_up_bias");
  expect_near(sliced.gradients().down_bias, whole.gradients().down_bias, "down_bias");
  for (Index i = 0; i < whole.gradients().router.view().size(); ++i)
    ASSERT_EQ(sliced.gradients().router.view().data[i], whole.gradients().router.view().data[i]);
}

TEST(RowBudget, ALayerInSlicesIsTheWholeLayer) {
  const Communicator world = Communicator::world();
  const Communicator ep = testing::largest_ep(world, kExperts);
  for (const Load load : {Load::kUsual, Load::kOneExpertTakesAll})
    for (const RandomBlock& shape :
         {RandomBlock{24, 20}, RandomBlock{24, 20, 12, true}, RandomBlock{24, 20, 12, true, {}, true}})
      for (const Index budget : {Index{25}, kTokens / 2 / ep.size()}) {
        SCOPED_TRACE(std::to_string(budget));
        expect_as_whole(load, shape, budget, {}, ep);
        expect_as_whole(load, shape, budget, open_dispatcher(DispatcherKind::kShared, ep, kExperts), ep);
      }
}

TEST(RowBudget, SlicesWithReplicasHaveTheBitsOfSlicesWithout) {
  const Communicator world = Communicator::world();
  const Communicator ep = testing::largest_ep(world, kExperts);
  const RandomBlock shape{24, 20};
  const BlockWeights weights = weights_of(Load::kOneRankTakesAll, shape);
  const Matrix hidden = tokens_of(Load::kOneRankTakesAll, shape.hidden);
  const Matrix upstream = random_matrix(kTokens, shape.hidden, 39);
  for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kShared})
    for (const Index budget : {Index{25}, Index{60}}) {
      SCOPED_TRACE(std::string(name_of(kind)) + ", " + std::to_string(budget));
      DispatcherSettings settings = open_dispatcher(kind, ep, kExperts);
      Block plain(ep, softmax_router(kExperts, kTopK), weights, testing::block_kernels(true), {}, settings);
      // Weights travel for nothing, so that every row that may move does.
      settings.rebalance = {.row_products = 3000, .on_node = {1, 0}, .between_nodes = {2, 0}};
      Block moved(ep, softmax_router(kExperts, kTopK), weights, testing::block_kernels(true), {}, settings);
      plain.row_budget = moved.row_budget = budget;
      for (Block* block : {&plain, &moved})
        for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
          block->run(stretch(hidden, ep), stretch(upstream, ep));
      EXPECT_GT(moved.slices(), 1);
      EXPECT_EQ(moved.slices(), plain.slices());
      EXPECT_LE(moved.most_rows(), budget);
      EXPECT_GE(moved.most_rows(), moved.rows_held());
      const auto expect_same = [](ConstMatrixView got, ConstMatrixView expected, const char* what) {
        EXPECT_TRUE(std::ranges::equal(got.flat(), expected.flat())) << what;
      };
      expect_same(moved.output, plain.output, "output");
      expect_same(moved.d_hidden, plain.d_hidden, "d_hidden");
      expect_same(moved.gradients().router, plain.gradients().router, "router");
      expect_same(moved.gradients().gate_up, plain.gradients().gate_up, "gate_up");
      expect_same(moved.gradients().down, plain.gradients().down, "down");
      const RebalanceCounts counts = moved.rebalance_counts();
      std::vector<Index> sums = {counts.replicas, counts.decisions()};
      ep.all_sum(sums);
      EXPECT_EQ(sums[0] > 0, ep.size() > 1);
      EXPECT_EQ(sums[1], 2 * moved.slices()) << "each slice";
    }
}

TEST(RowBudget, HoldsForEveryRankAndEverySlice) {
  const Communicator world = Communicator::world();
  const Communicator ep = testing::largest_ep(world, kExperts);
  const RandomBlock shape{24, 20};
  const Matrix hidden = tokens_of(Load::kOneExpertTakesAll, shape.hidden);
  const Matrix upstream = random_matrix(kTokens, shape.hidden, 39);
  // The rank of expert 3 gets a row of every token, and of expert 4 too if it has that one.
  for (const Index budget : {Index{60}, Index{31}, Index{2 * ep.size()}}) {
    Block block(ep, softmax_router(kExperts, kTopK), weights_of(Load::kOneExpertTakesAll, shape),
                testing::block_kernels(true));
    block.row_budget = budget;
    block.run(stretch(hidden, ep), stretch(upstream, ep));
    EXPECT_LE(block.most_rows(), budget);
    EXPECT_GE(block.most_rows(), block.rows_held());
  }
}

TEST(RowBudget, IsNotAskedForWhereRowsFit) {
  const Communicator world = Communicator::world();
  const Communicator ep = testing::largest_ep(world, kExperts);
  const RandomBlock shape{24, 20};
  const Matrix hidden = tokens_of(Load::kUsual, shape.hidden);
  Block block(ep, softmax_router(kExperts, kTopK), weights_of(Load::kUsual, shape),
              testing::block_kernels(true));
  block.row_budget = kTokens * kTopK;
  block.run(stretch(hidden, ep), stretch(hidden, ep));
  EXPECT_EQ(block.slices(), 1);
}

}  // namespace
}  // namespace moeloom
