// Every family's sparse block against its reference: one row a class, whatever cases the golden folder has.
#include <iostream>
#include <map>

#include "golden_block_case.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::BlockWeights;
using testing::stretch;
using testing::sum_over;

double error(ConstMatrixView got, ConstMatrixView expected) {
  return testing::golden_error(got.flat(), expected.flat(), testing::kBlockFloor);
}

/// Chosen experts and their weights, slot after slot. Where the reference's order means nothing a token's go
/// by expert.
struct Choices {
  std::vector<std::int64_t> experts;
  std::vector<float> weights;

  template <typename Ids>
  Choices(const testing::BlockCase& c, const Ids& ids, std::span<const float> weights_of_ids) {
    for (Index first = 0; first < static_cast<Index>(ids.size()); first += c.router.top_k) {
      std::vector<std::pair<std::int64_t, float>> token;
      for (Index slot = first; slot < first + c.router.top_k; ++slot)
        token.emplace_back(ids[at(slot)], weights_of_ids[at(slot)]);
      if (!c.family.ordered) std::ranges::sort(token);
      for (const auto& [expert, weight] : token) {
        experts.push_back(expert);
        weights.push_back(weight);
      }
    }
  }
};

void expect_choices(const testing::BlockCase& c, const Routing& routing, const Communicator& ep) {
  const Matrix whole = c.slots("topk_weights");
  const ConstMatrixView mine = stretch(whole, ep);
  const auto ids = c.golden.tensors.integers("selected_experts");
  const std::span<const std::int64_t> my_ids(ids.data() + (mine.data - whole.view().data), at(mine.size()));
  const Choices expected(c, my_ids, mine.flat());
  const Choices got(c, routing.topk_idx, routing.topk_weights);
  EXPECT_EQ(got.experts, expected.experts);
  EXPECT_LE(
      testing::golden_error(got.weights, std::span<const float>(expected.weights), testing::kBlockFloor),
      1e-5);
}

/// The README's exception: a gradient whose true value is 0, or nearly.
double router_tolerance(const std::string& name) {
  return name.ends_with("_top1_norm") || name.ends_with("_one_expert_top1") ? 1e-4 : 2e-5;
}

void expect_expert_gradients(const testing::BlockCase& c, const testing::Block& block) {
  const Index inter = c.weights.inter();
  const Index hidden = c.weights.hidden();
  for (Index i = 0; i < block.held().count; ++i) {
    const Index expert = block.held().begin + i;
    SCOPED_TRACE("expert " + std::to_string(expert));
    for (const Index half : {2 * i, 2 * i + 1})  // gate and up are tensors of their own
      EXPECT_LE(error(block.gradients().gate_up.view().rows_from(half * inter, inter),
                      c.gradients.gate_up.view().rows_from((2 * block.held().begin + half) * inter, inter)),
                2e-5);
    EXPECT_LE(error(block.gradients().down.view().rows_from(i * hidden, hidden),
                    c.gradients.down.view().rows_from(expert * hidden, hidden)),
              2e-5);
    if (c.weights.down_bias.rows() == 0) continue;
    EXPECT_LE(error(block.gradients().gate_up_bias.view().rows_from(i, 1),
                    c.gradients.gate_up_bias.view().rows_from(expert, 1)),
              2e-5);
    EXPECT_LE(error(block.gradients().down_bias.view().rows_from(i, 1),
                    c.gradients.down_bias.view().rows_from(expert, 1)),
              2e-5);
  }
}

/// Of the weights that every rank has.
void expect_replicated_gradients(const testing::BlockCase& c, const testing::Block& block,
                                 const Communicator& ep) {
  const auto summed_error = [&](const Matrix& mine, const Matrix& expected) {
    return error(sum_over(ep, mine), expected);
  };
  const BlockWeights& mine = block.gradients();
  const Index shared = c.weights.shared_down.cols();
  EXPECT_LE(summed_error(mine.router, c.gradients.router), router_tolerance(c.golden.name));
  const Matrix gate_up = sum_over(ep, mine.shared_gate_up);
  for (const Index half : {0, 1})
    EXPECT_LE(error(gate_up.view().rows_from(half * shared, shared),
                    c.gradients.shared_gate_up.view().rows_from(half * shared, shared)),
              2e-5);
  EXPECT_LE(summed_error(mine.shared_down, c.gradients.shared_down), 2e-5);
  EXPECT_LE(summed_error(mine.shared_gate, c.gradients.shared_gate), 2e-5);
  EXPECT_LE(summed_error(mine.router_bias, c.gradients.router_bias), 2e-5);
  EXPECT_LE(summed_error(mine.shared_gate_up_bias, c.gradients.shared_gate_up_bias), 2e-5);
  EXPECT_LE(summed_error(mine.shared_down_bias, c.gradients.shared_down_bias), 2e-5);
}

void expect_golden(const testing::BlockCase& c, bool grouped, const Communicator& ep) {
  SCOPED_TRACE(c.golden.name + (grouped ? " GMM" : " loop") + " ep=" + std::to_string(ep.size()));
  testing::Block block(ep, c.router, c.weights, testing::block_kernels(grouped));
  block.run(stretch(c.tokens("input.hidden_states"), ep), stretch(c.tokens("upstream_grad.output"), ep));
  EXPECT_LE(error(block.output, stretch(c.tokens("output"), ep)), 1e-5);
  EXPECT_LE(error(block.d_hidden, stretch(c.tokens("grad.input.hidden_states"), ep)), 2e-5);
  expect_choices(c, block.routing(), ep);
  expect_expert_gradients(c, block);
  expect_replicated_gradients(c, block, ep);
}

TEST(GoldenBlock, OfEveryFamilyAgreesAtEveryEpWithLoopAndGmm) {
  const Communicator world = Communicator::world();
  const auto cases = testing::golden_cases("blocks", testing::read_by("GoldenBlock"));
  std::map<std::string, int> compared;
  for (const auto& folder : cases) {
    ASSERT_NE(testing::family_of(folder), nullptr)
        << folder << ": no rule for " << testing::golden_class(folder);
    const testing::BlockCase c(folder);
    ++compared[c.family.hf_class];
    const Communicator ep = testing::largest_ep(world, c.weights.experts());
    for (const bool grouped : {false, true}) expect_golden(c, grouped, ep);
  }
  for (const auto& [hf_class, count] : compared)
    if (world.rank() == 0)
      std::cout << "golden: GoldenBlock compared " << count << " of " << hf_class << '\n';
}

}  // namespace
}  // namespace moeloom
