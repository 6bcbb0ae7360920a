// Experts with replicas on other ranks give the bits that they give without.
#include "moe/experts/expert_runner.hpp"

#include "moe_block.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Block;
using testing::block_kernels;
using testing::BlockWeights;
using testing::random_matrix;
using testing::RandomBlock;

/// Weights travel for nothing, so that every row that may move does.
constexpr RebalanceRates kFreeWeights{.row_products = 3000, .on_node = {1, 0}, .between_nodes = {2, 0}};
constexpr Index kHidden = 24, kInter = 20;

struct Case {
  const char* name;
  DispatcherKind kind = DispatcherKind::kAlltoall;
  Index nodes = 0;
  Index experts = 8, top_k = 2;
  std::vector<Index> tokens_by_rank = {300, 200};  // repeated
  std::set<std::string> frozen = {};
  WireDType wire = WireDType::kFp32;
  bool biases = false;
  bool weight_on_input = false;
  Index chunks = 0;
  bool recompute = false;
  Index row_budget = 0;
};

const std::vector<Case> kCases = {
    {"alltoall"},
    {"shared", DispatcherKind::kShared},
    {"hierarchical", DispatcherKind::kHierarchical, 2},
    {"hierarchical, nodes of one rank", DispatcherKind::kHierarchical, 4},
    {"top-1", DispatcherKind::kAlltoall, 0, 8, 1},
    {"experts do not divide", DispatcherKind::kAlltoall, 2, 7, 2},
    {"experts do not divide, hierarchical", DispatcherKind::kHierarchical, 2, 7, 2},
    {"a source with most rows", DispatcherKind::kAlltoall, 0, 8, 2, {900, 10, 0, 300}},
    {"an expert a rank", DispatcherKind::kAlltoall, 0, 4, 1},
    {"gate_up frozen", DispatcherKind::kAlltoall, 0, 8, 2, {300, 200}, {"gate_up"}},
    {"down frozen", DispatcherKind::kAlltoall, 0, 8, 2, {300, 200}, {"down"}},
    {"experts frozen", DispatcherKind::kAlltoall, 0, 8, 2, {300, 200}, {"gate_up", "down"}},
    {"bf16 rows", DispatcherKind::kAlltoall, 0, 8, 2, {300, 200}, {}, WireDType::kBf16},
    {"biases", DispatcherKind::kAlltoall, 0, 8, 2, {300, 200}, {}, WireDType::kFp32, true},
    {"biases do not divide", DispatcherKind::kShared, 0, 7, 2, {300, 200}, {}, WireDType::kFp32, true},
    {"biases, weight on input",
     DispatcherKind::kAlltoall,
     0,
     8,
     2,
     {300, 200},
     {},
     WireDType::kFp32,
     true,
     true},
    {"biases beside frozen weights",
     DispatcherKind::kAlltoall,
     0,
     8,
     2,
     {300, 200},
     {"gate_up", "down_bias"},
     WireDType::kFp32,
     true}};

/// Tokens that lie close together, so that few experts get most of them.
Matrix tokens_of(const Case& c, int rank, std::uint64_t seed, double spread) {
  const Index tokens = c.tokens_by_rank[at(rank) % c.tokens_by_rank.size()];
  const Matrix middle = random_matrix(1, kHidden, seed);
  Matrix hidden = random_matrix(tokens, kHidden, seed + 1 + static_cast<std::uint64_t>(rank), spread);
  for (Index t = 0; t < tokens; ++t)
    for (Index j = 0; j < kHidden; ++j) hidden.row(t)[j] += middle.view()(0, j);
  return hidden;
}

DispatcherSettings settings_of(const Case& c, const Communicator& ep) {
  DispatcherSettings settings =
      open_dispatcher(c.kind, ep, c.experts, {.dtype = c.wire, .pretended_nodes = c.nodes});
  settings.chunks = c.chunks;
  return settings;
}

void expect_same_bits(ConstMatrixView got, ConstMatrixView expected, const char* what) {
  ASSERT_EQ(got.rows, expected.rows) << what;
  ASSERT_TRUE(std::ranges::equal(got.flat(), expected.flat())) << what;
}

/// Both with the same tokens, a micro-batch after the other, each with other favourites.
void expect_same_course(const Case& c, const Communicator& ep, bool grouped) {
  RouterSettings router = softmax_router(c.experts, c.top_k);
  router.weight_on_input = c.weight_on_input;
  const RandomBlock shape{.hidden = kHidden, .inter = kInter, .biases = c.biases};
  const BlockWeights weights = shape.weights(c.experts, 31);
  DispatcherSettings settings = settings_of(c, ep);
  Block plain(ep, router, weights, block_kernels(grouped), c.frozen, settings);
  settings.rebalance = kFreeWeights;
  Block rebalanced(ep, router, weights, block_kernels(grouped), c.frozen, settings);
  for (Block* block : {&plain, &rebalanced}) {
    block->recompute = c.recompute;
    block->row_budget = c.row_budget;
  }
  for (std::uint64_t batch = 0; batch < 3; ++batch) {
    const Matrix hidden = tokens_of(c, ep.rank(), 100 * batch, 0.3);
    const Matrix upstream = random_matrix(hidden.rows(), kHidden, 7 + batch);
    plain.run(hidden, upstream);
    rebalanced.run(hidden, upstream);
    EXPECT_EQ(rebalanced.plan().tokens_per_expert, plain.plan().tokens_per_expert);
    if (!grouped) continue;
    expect_same_bits(rebalanced.output, plain.output, "output");
    expect_same_bits(rebalanced.d_hidden, plain.d_hidden, "d_hidden");
    expect_same_bits(rebalanced.gradients().router, plain.gradients().router, "router");
    expect_same_bits(rebalanced.gradients().gate_up, plain.gradients().gate_up, "gate_up");
    expect_same_bits(rebalanced.gradients().down, plain.gradients().down, "down");
    expect_same_bits(rebalanced.gradients().gate_up_bias, plain.gradients().gate_up_bias, "gate_up_bias");
    expect_same_bits(rebalanced.gradients().down_bias, plain.gradients().down_bias, "down_bias");
  }
  RebalanceCounts counts = rebalanced.rebalance_counts();
  std::vector<Index> sums = {counts.replicas, counts.rows_moved, counts.weight_bytes, counts.gradient_bytes,
                             counts.decided(RebalanceVerdict::kMade)};
  ep.all_sum(sums);
  EXPECT_GT(sums[0], 0);
  EXPECT_GT(sums[1], 0);
  const Index of_biases = c.biases ? 2 * kInter + kHidden : 0;
  const bool trains = !c.frozen.contains("gate_up") || !c.frozen.contains("down");
  if (c.recompute || c.row_budget > 0) {
    const bool all_are_sent = settings.memory == nullptr;
    const Index sent = settings.memory != nullptr && settings.nodes.nodes() > 1 ? 0 : of_biases;
    EXPECT_GE(sums[2], sums[0] * (all_are_sent ? 3 * kHidden * kInter + of_biases : sent) * 4)
        << "weights come again with the rows that are made again";
    EXPECT_EQ(sums[3] > 0, settings.memory == nullptr || settings.nodes.nodes() > 1);
  } else if (settings.memory == nullptr) {
    EXPECT_EQ(sums[2], sums[0] * (3 * kHidden * kInter + of_biases) * 4)
        << "a replica is one expert's weights";
    EXPECT_EQ(sums[3] > 0, trains);
  } else if (settings.nodes.nodes() == 1) {
    EXPECT_EQ(sums[2], sums[0] * of_biases * 4) << "what lies in the node's memory is read there";
    EXPECT_EQ(sums[3], 0) << "written where they are added up";
  } else {
    EXPECT_LT(sums[2], sums[0] * (3 * kHidden * kInter + of_biases) * 4 + 1);
  }
  EXPECT_GT(sums[4], 0);
}

TEST(RebalancedExperts, HaveTheBitsThatTheyHaveWithoutReplicas) {
  const Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "one rank has nobody to hold a replica";
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    expect_same_course(c, world, true);
  }
}

/// As between ranks, what is frozen or biased being no matter of the dispatcher.
TEST(RebalancedExperts, AreReadAndAddedUpInTheNodesMemory) {
  const Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "one rank has nobody to hold a replica";
  for (Case c : kCases) {
    if (c.kind != DispatcherKind::kAlltoall || c.wire != WireDType::kFp32) continue;
    SCOPED_TRACE(c.name);
    c.kind = DispatcherKind::kShared;
    c.nodes = 0;
    expect_same_course(c, world, true);
  }
}

/// Ranks that wait for a replica's weights or sums see to the rows of their node's others meanwhile.
TEST(RebalancedExperts, GoWithChunksWithRowsThatAreMadeAgainAndWithSlices) {
  const Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "one rank has nobody to hold a replica";
  for (const DispatcherKind kind : kDispatcherKinds)
    for (const auto& [chunks, row_budget] : {std::pair<Index, Index>{0, 400}, {3, 0}, {3, 400}}) {
      Case c{.name = "", .kind = kind, .nodes = kind == DispatcherKind::kHierarchical ? 2 : 0};
      c.biases = true;  // which are sent, as they lie elsewhere
      c.chunks = chunks;
      c.recompute = true;
      c.row_budget = row_budget;
      SCOPED_TRACE(std::string(name_of(kind)) + ", chunks " + std::to_string(chunks) + ", rows " +
                   std::to_string(row_budget));
      expect_same_course(c, world, true);
    }
}

TEST(RebalancedExperts, RunTheLoopToo) {
  const Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "one rank has nobody to hold a replica";
  expect_same_course(kCases.front(), world, false);
}

TEST(RebalancedExperts, AreAnyRanksOwnWhereNothingPays) {
  const Communicator world = Communicator::world();
  const Case& c = kCases.front();
  const RouterSettings router = softmax_router(c.experts, c.top_k);
  const BlockWeights weights = RandomBlock{kHidden, kInter}.weights(c.experts, 31);
  DispatcherSettings settings = settings_of(c, world);
  Block plain(world, router, weights, block_kernels(true), {}, settings);
  settings.rebalance = {.row_products = 3, .on_node = {0, 1000000}, .between_nodes = {0, 1000000}};
  Block refusing(world, router, weights, block_kernels(true), {}, settings);
  const Matrix hidden = tokens_of(c, world.rank(), 3, 0.3);
  plain.run(hidden, hidden);
  refusing.run(hidden, hidden);
  expect_same_bits(refusing.output, plain.output, "output");
  expect_same_bits(refusing.gradients().gate_up, plain.gradients().gate_up, "gate_up");
  const RebalanceCounts counts = refusing.rebalance_counts();
  EXPECT_EQ(counts.replicas + counts.weight_bytes + counts.gradient_bytes, 0);
  const RebalanceVerdict verdict =
      world.size() == 1 ? RebalanceVerdict::kEven : RebalanceVerdict::kDoesNotPay;
  EXPECT_EQ(counts.decided(verdict), world.rank() == 0 ? 1 : 0);
}

}  // namespace
}  // namespace moeloom
