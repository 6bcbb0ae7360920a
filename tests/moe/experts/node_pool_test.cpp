#include "moeloom/moe/experts/node_pool.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/moe/dispatch/dispatcher.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "dispatch/trips.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

struct Case {
  const char* name;
  std::vector<Index> tokens_by_rank;  // repeated when there are more ranks
  Index top_k, experts, favourite;
  Index hidden = 6, inter = 5;
  bool biased = false, weight_on_input = false;
  Index gate_up_rank = 0, down_rank = 0;  // of adapters; 0: none
};
using Names = std::set<std::string>;

/// The wide ones have rows for several blocks and columns for several panels.
const std::vector<Case> kCases = {{"even", {8}, 2, 8, -1},
                                  {"uneven", {13, 1, 0, 6}, 3, 8, -1},
                                  {"no tokens anywhere", {0}, 2, 8, -1},
                                  {"one rank alone", {9, 0}, 2, 8, -1},
                                  {"one hot expert", {10}, 1, 8, 7},
                                  {"one hot expert, wide", {300, 211}, 1, 8, 1, 270, 20},
                                  {"one hot rank, wide", {140, 300}, 2, 9, 0, 20, 260},
                                  {"every expert", {4, 3}, 8, 8, -1},
                                  {"experts do not divide", {6, 2}, 2, 11, -1},
                                  {"biased", {13, 1, 0, 6}, 3, 8, -1, 6, 5, true},
                                  {"biased, no tokens", {0}, 2, 8, -1, 6, 5, true},
                                  {"biased, wide", {300, 211}, 1, 8, 1, 270, 20, true},
                                  {"biased, weight on input", {130, 20}, 3, 8, -1, 6, 5, true, true},
                                  {"weight on input", {13, 1, 0, 6}, 3, 8, -1, 6, 5, false, true}};

Index tokens_of(const Case& c, int rank) {
  return c.tokens_by_rank[static_cast<std::size_t>(rank) % c.tokens_by_rank.size()];
}

struct Way {
  DispatcherKind dispatcher = DispatcherKind::kShared;
  Index pretended_nodes = 0;
};

KernelTable table_of(const GroupedMatmulKernel& grouped) {
  KernelTable table;
  table.grouped_matmul = grouped;
  table.swiglu = fused_swiglu();
  return table;
}

GroupedMatmulKernel reading_packed(GroupedMatmulKernel kernel) {
  kernel.uses_packed = true;
  return kernel;
}

/// All that a layer's experts give, forward and twice backward.
struct Results {
  Matrix output, d_hidden;
  std::vector<float> d_topk_weights;
  Matrix d_gate_up, d_down;
  Matrix d_gate_up_bias, d_down_bias;
  std::vector<Matrix> d_factors = {};
};

/// What an adapter adds to columns [column, column + out) of one of the products.
struct Factors {
  bool of_gate_up;
  Index column;
  RowBuffer a, b, d_a, d_b;
  float scale;

  LowRank part() {
    LowRank part;
    part.column = column;
    part.a = a.view(), part.b = b.view();
    part.d_a = d_a.view(), part.d_b = d_b.view();
    part.scale = scale;
    return part;
  }
};

/// The experts of this rank in a node's memory, and one pass of its tokens through everyone's.
class Experts {
 public:
  Experts(const Communicator& ep, const Case& c, const Way& way)
      : case_(c),
        settings_(open_dispatcher(way.dispatcher, ep, c.experts, {.pretended_nodes = way.pretended_nodes})),
        dispatcher_(ep, c.experts, settings_),
        held_(experts_of(c.experts, ep.size(), ep.rank())),
        gate_up_(weights(2 * c.inter, c.hidden, 1)),
        down_(weights(c.hidden, c.inter, 2)),
        gate_up_bias_(weights(1, 2 * c.inter, 3)),
        down_bias_(weights(1, c.hidden, 4)),
        tokens_(testing::random_matrix(tokens_of(c, ep.rank()), c.hidden, seed(ep, 90))),
        d_output_(testing::random_matrix(tokens_.rows(), c.hidden, seed(ep, 290))) {
    const auto chosen =
        testing::random_choices(tokens_.rows(), c.top_k, c.experts, seed(ep, 70), c.favourite);
    dispatcher_.plan(chosen, c.top_k, plan_);
    const Matrix scores = testing::random_matrix(plan_.slots(), 1, seed(ep, 490));
    topk_weights_.assign(scores.view().flat().begin(), scores.view().flat().end());
    if (c.gate_up_rank > 0)
      for (const Index column : {Index{0}, c.inter})
        add_factors(true, column, c.inter, c.hidden, c.gate_up_rank);
    if (c.down_rank > 0) add_factors(false, 0, c.hidden, c.inter, c.down_rank);
  }

  const std::shared_ptr<NodeMemory>& memory() const { return settings_.memory; }
  Index rows() const { return plan_.rows(); }

  /// frozen: of "gate_up", "down", their biases and "factors"; in_bf16: of the first two. With a pool, or as
  /// every rank runs its own.
  Results run(const KernelTable& kernels, NodePool* pool, const Names& frozen = {},
              const Names& in_bf16 = {}) {
    Results results{.output = Matrix(tokens_.rows(), case_.hidden),
                    .d_hidden = Matrix(tokens_.rows(), case_.hidden),
                    .d_topk_weights = {},
                    .d_gate_up = {},
                    .d_down = {},
                    .d_gate_up_bias = {},
                    .d_down_bias = {}};
    RowBuffer d_gate_up = gradient(frozen.contains("gate_up") ? 0 : gate_up_.rows(), case_.hidden);
    RowBuffer d_down = gradient(frozen.contains("down") ? 0 : down_.rows(), case_.inter);
    RowBuffer d_gate_up_bias = gradient(frozen.contains("gate_up_bias") ? 0 : held_.count, 2 * case_.inter);
    RowBuffer d_down_bias = gradient(frozen.contains("down_bias") ? 0 : held_.count, case_.hidden);
    ExpertShard shard{held_.count, gate_up_, down_, d_gate_up, d_down};
    if (case_.biased) shard.biases = {gate_up_bias_, down_bias_, d_gate_up_bias, d_down_bias};
    if (case_.weight_on_input) shard.activation.scale_on = RowScaleOn::kInputs;
    for (Factors& factors : factors_) {
      factors.d_a = gradient(frozen.contains("factors") ? 0 : factors.a.rows(), factors.a.cols());
      factors.d_b = gradient(frozen.contains("factors") ? 0 : factors.b.rows(), factors.b.cols());
      (factors.of_gate_up ? shard.adapters.gate_up : shard.adapters.down).push_back(factors.part());
    }
    RowBuffer memory_of_gate_up(settings_.memory), memory_of_down(settings_.memory);
    if (in_bf16.contains("gate_up")) shard.gate_up_halves = as_halves(shard.gate_up, memory_of_gate_up);
    if (in_bf16.contains("down")) shard.down_halves = as_halves(shard.down, memory_of_down);
    packed_ = {};
    for (const Write gradients : {Write::kReplace, Write::kAdd})
      pass(kernels, shard, pool, gradients, results);
    for (Factors& factors : factors_) {
      results.d_factors.push_back(Matrix::copy_of(factors.d_a));
      results.d_factors.push_back(Matrix::copy_of(factors.d_b));
    }
    results.d_gate_up = Matrix::copy_of(d_gate_up);
    results.d_down = Matrix::copy_of(d_down);
    results.d_gate_up_bias = Matrix::copy_of(d_gate_up_bias);
    results.d_down_bias = Matrix::copy_of(d_down_bias);
    return results;
  }

 private:
  static std::uint64_t seed(const Communicator& ep, std::uint64_t first) {
    return first + static_cast<std::uint64_t>(ep.rank());
  }

  RowBuffer weights(Index rows, Index cols, std::uint64_t seed) {
    RowBuffer mine(settings_.memory);
    mine.reshape_uninitialised(held_.count * rows, cols);
    copy(testing::random_matrix(case_.experts * rows, cols, seed, 0.3)
             .view()
             .rows_from(held_.begin * rows, held_.count * rows),
         mine);
    return mine;
  }

  void add_factors(bool of_gate_up, Index column, Index out, Index in, Index rank) {
    const std::uint64_t seed = 10 + 2 * factors_.size();
    RowBuffer a = weights(rank, in, seed), b = weights(out, rank, seed + 1);
    factors_.push_back({of_gate_up, column, std::move(a), std::move(b), {}, {}, 0.5f + 0.25f * real(rank)});
  }
  static float real(Index number) { return static_cast<float>(number); }

  /// Of the weight the shape is left.
  static Bf16View as_halves(MatrixView& weight, RowBuffer& memory) {
    memory.reshape_uninitialised(weight.rows, ceil_div(weight.cols, Index{2}));
    const Bf16View halves(reinterpret_cast<std::uint16_t*>(memory.view().data), weight.rows, weight.cols);
    for (Index i = 0; i < weight.rows; ++i)
      for (Index j = 0; j < weight.cols; ++j) set(halves(i, j), weight(i, j));
    weight.data = nullptr;
    return halves;
  }

  /// What kReplace must not leave behind.
  RowBuffer gradient(Index rows, Index cols) {
    RowBuffer mine(settings_.memory);
    mine.reshape_uninitialised(rows, cols);
    fill(mine, 5.0f);
    return mine;
  }

  void pass(const KernelTable& kernels, const ExpertShard& shard, NodePool* pool, Write gradients,
            Results& results) {
    const ExpertPass each{kernels, shard, packed_, plan_.grouped_rows(), saved_, workspace_, clock_};
    const RoundTrip forward{.plan = plan_,
                            .tokens = tokens_,
                            .rows = saved_.rows,
                            .scalars_out = ScalarsOut{topk_weights_, saved_.weights},
                            .results = workspace_.output,
                            .sums = results.output,
                            .mode = gradients};
    testing::travel(dispatcher_, forward, [&](Index) {
      packed_.refresh(kernels.grouped_matmul, shard, 1);
      if (pool != nullptr)
        pool->forward(each);
      else
        experts_forward(each);
    });
    workspace_.d_weights.resize(at(plan_.rows()));  // before the trip says where they are
    const RoundTrip backward{.plan = plan_,
                             .tokens = d_output_,
                             .rows = d_rows_,
                             .scalars_out = std::nullopt,
                             .results = workspace_.output,
                             .sums = results.d_hidden,
                             .mode = gradients,
                             .scalars_back = ScalarsBack{workspace_.d_weights, results.d_topk_weights}};
    testing::travel(dispatcher_, backward, [&](Index) {
      if (pool != nullptr)
        pool->backward(each, d_rows_, gradients);
      else
        experts_backward(each, d_rows_, gradients);
    });
  }

  const Case case_;
  DispatcherSettings settings_;
  Dispatcher dispatcher_;
  ExpertRange held_;
  RowBuffer gate_up_, down_, gate_up_bias_, down_bias_;
  std::vector<Factors> factors_;
  Matrix tokens_, d_output_;
  std::vector<float> topk_weights_;
  DispatchPlan plan_;
  PackedExperts packed_;
  ExpertActivations saved_;
  ExpertWorkspace workspace_;
  RowBuffer d_rows_;
  PhaseClock clock_;
};

void expect_same_bits(const Matrix& got, const Matrix& expected, const char* what) {
  ASSERT_EQ(got.rows(), expected.rows()) << what;
  const Index size = got.view().size();
  const float* first = got.view().data;
  EXPECT_TRUE(std::equal(first, first + size, expected.view().data)) << what;
}

void expect_same_bits(const Results& got, const Results& expected) {
  expect_same_bits(got.output, expected.output, "output");
  expect_same_bits(got.d_hidden, expected.d_hidden, "d_hidden");
  EXPECT_EQ(got.d_topk_weights, expected.d_topk_weights);
  expect_same_bits(got.d_gate_up, expected.d_gate_up, "d_gate_up");
  expect_same_bits(got.d_down, expected.d_down, "d_down");
  expect_same_bits(got.d_gate_up_bias, expected.d_gate_up_bias, "d_gate_up_bias");
  expect_same_bits(got.d_down_bias, expected.d_down_bias, "d_down_bias");
  ASSERT_EQ(got.d_factors.size(), expected.d_factors.size());
  for (std::size_t i = 0; i < got.d_factors.size(); ++i)
    expect_same_bits(got.d_factors[i], expected.d_factors[i], "a factor's gradient");
}

class Threads {
 public:
  explicit Threads(int count) { set_threads(count); }
  ~Threads() { set_threads(1); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
};

/// What multiplies, and by how many threads of a rank.
struct Products {
  const char* name;
  GroupedMatmulKernel kernel;
  int threads;
};
const std::vector<Products> kProducts = {
    {"loop", native_grouped_matmul(), 1},
    {"grouped", packed_grouped_matmul(), 1},
    {"grouped on packed faces", reading_packed(packed_grouped_matmul()), 1},
    {"grouped in bf16", packed_bf16_grouped_matmul(), 1},
    {"loop by 2 threads", native_grouped_matmul(), 2},
    {"grouped by 2 threads", packed_grouped_matmul(), 2}};

void expect_bits_of_own_experts(const Communicator& ep, const Case& c, const Way& way) {
  Experts experts(ep, c, way);
  NodePool pool(experts.memory());
  for (const Products& products : kProducts) {
    SCOPED_TRACE(std::string(c.name) + ", " + products.name + ", " + std::string(name_of(way.dispatcher)));
    const KernelTable table = table_of(products.kernel);
    const Results expected = experts.run(table, nullptr);
    const Threads threads(products.threads);
    expect_same_bits(experts.run(table, &pool), expected);
  }
}

TEST(NodePoolDispatch, HasTheBitsOfRanksThatRunTheirOwnExpertsForEveryRoutingAndKernel) {
  for (const Case& c : kCases)
    expect_bits_of_own_experts(Communicator::world(), c, {DispatcherKind::kShared});
}

TEST(NodePoolDispatch, OfHierarchicalIsThatOfEachNodeAndHasTheSameBits) {
  for (const Case& c : kCases)
    if (c.hidden < 100 && c.inter < 100)
      expect_bits_of_own_experts(Communicator::world(), c, {DispatcherKind::kHierarchical, 2});
}

TEST(NodePool, LeavesOutTheGradientOfAFrozenWeightAndChangesNoOther) {
  const Communicator ep = Communicator::world();
  const Case c{"uneven", {13, 1, 0, 6}, 3, 8, -1};
  Experts experts(ep, c, Way{});
  NodePool pool(experts.memory());
  const KernelTable table = table_of(packed_grouped_matmul());
  const Results trained = experts.run(table, nullptr);
  for (const char* frozen : {"gate_up", "down"}) {
    SCOPED_TRACE(frozen);
    const Results got = experts.run(table, &pool, {frozen});
    const bool gate_up_is_frozen = frozen == std::string("gate_up");
    expect_same_bits(got.output, trained.output, "output");
    expect_same_bits(got.d_hidden, trained.d_hidden, "d_hidden");
    expect_same_bits(gate_up_is_frozen ? got.d_down : got.d_gate_up,
                     gate_up_is_frozen ? trained.d_down : trained.d_gate_up, "the other gradient");
    EXPECT_EQ((gate_up_is_frozen ? got.d_gate_up : got.d_down).rows(), 0);
  }
}

TEST(NodePool, LeavesOutTheGradientOfAFrozenBiasOrOfTheWeightBesideIt) {
  const Communicator ep = Communicator::world();
  const Case c{"biased", {130, 1, 0, 6}, 3, 8, -1, 270, 5, true};
  Experts experts(ep, c, Way{});
  NodePool pool(experts.memory());
  const KernelTable table = table_of(packed_grouped_matmul());
  for (const char* frozen : {"gate_up", "down", "gate_up_bias", "down_bias"}) {
    SCOPED_TRACE(frozen);
    expect_same_bits(experts.run(table, &pool, {frozen}), experts.run(table, nullptr, {frozen}));
  }
}

Case with_adapters(Case c, Index gate_up_rank, Index down_rank) {
  c.gate_up_rank = gate_up_rank;
  c.down_rank = down_rank;
  return c;
}

/// An expert without rows, one with all of them in several blocks, ranks without tokens, biases.
const std::vector<Case> kAdaptedCases = {
    with_adapters({"uneven", {13, 1, 0, 6}, 3, 8, -1}, 3, 0),
    with_adapters({"uneven", {13, 1, 0, 6}, 3, 8, -1}, 0, 2),
    with_adapters({"experts do not divide", {6, 2}, 2, 11, -1}, 5, 3),
    with_adapters({"no tokens anywhere", {0}, 2, 8, -1}, 5, 3),
    with_adapters({"one hot expert", {10}, 1, 8, 7}, 5, 3),
    with_adapters({"one hot expert, wide", {300, 211}, 1, 8, 1, 270, 20}, 5, 3),
    with_adapters({"one hot rank, wide", {140, 300}, 2, 9, 0, 20, 260}, 3, 17),
    with_adapters({"biased", {13, 1, 0, 6}, 3, 8, -1, 6, 5, true}, 3, 2),
    with_adapters({"biased, weight on input", {130, 20}, 3, 8, -1, 6, 5, true, true}, 3, 2)};

/// Beside weights that train, that rest, and that rest in bf16.
void expect_bits_with_adapters(const Communicator& ep, const Case& c, const Way& way) {
  const Names base = {"gate_up", "down"}, none;
  Experts experts(ep, c, way);
  NodePool pool(experts.memory());
  for (const Products& products : kProducts)
    for (const auto& [frozen, in_bf16] : {std::pair{none, none}, {base, none}, {base, base}}) {
      if (products.threads > 1 && in_bf16.empty()) continue;
      SCOPED_TRACE(std::string(c.name) + ", " + products.name + ", " + std::to_string(frozen.size()) +
                   " frozen, " + std::to_string(in_bf16.size()) + " in bf16");
      const KernelTable table = table_of(products.kernel);
      const Results expected = experts.run(table, nullptr, frozen, in_bf16);
      const Threads threads(products.threads);
      expect_same_bits(experts.run(table, &pool, frozen, in_bf16), expected);
    }
}

TEST(NodePoolDispatch, HasTheSameBitsWithAdaptersOfExperts) {
  for (const Case& c : kAdaptedCases)
    expect_bits_with_adapters(Communicator::world(), c, {DispatcherKind::kShared});
}

TEST(NodePoolDispatch, OfHierarchicalHasTheSameBitsWithAdaptersOfExperts) {
  expect_bits_with_adapters(Communicator::world(), kAdaptedCases.front(), {DispatcherKind::kHierarchical, 2});
}

TEST(NodePool, AddsWhatFactorsAddAndLeavesOutTheirGradientsWhereTheyAreFrozen) {
  const Communicator ep = Communicator::world();
  const Case c{"uneven", {13, 5, 0, 6}, 3, 8, -1};
  Experts plain(ep, c, Way{}), adapted(ep, with_adapters(c, 3, 2), Way{});
  NodePool pool(adapted.memory());
  const KernelTable table = table_of(packed_grouped_matmul());
  const Results got = adapted.run(table, &pool, {"factors"});
  expect_same_bits(got, adapted.run(table, nullptr, {"factors"}));
  for (const Matrix& gradient : got.d_factors) EXPECT_EQ(gradient.rows(), 0);
  if (got.output.rows() > 0)
    EXPECT_NE(got.output.view()(0, 0), plain.run(table, nullptr).output.view()(0, 0));
  else
    plain.run(table, nullptr);
}

/// Products that sleep: whoever has nothing of its own then finds time to take the others'.
GroupedMatmulKernel slow_kernel() {
  GroupedMatmulKernel slow = packed_grouped_matmul();
  slow.forward = [](const GroupedWeights& w, const PackedWeights& packed, ConstRows x,
                    const GroupedRows& rows, MatrixView y) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    packed_grouped_matmul().forward(w, packed, x, rows, y);
  };
  return slow;
}

/// Every token chooses expert 0, and rank 0 holds it: 20 blocks forward and 20 backward, twice.
TEST(NodePool, OtherRanksRunTasksOfTheOneThatHasAllRows) {
  const Communicator ep = Communicator::world();
  const Index tokens = 20 * kGemmRows / ep.size();
  const Case hot{"hot", {tokens}, 1, 8, 0, 8, 4};
  Experts experts(ep, hot, Way{});
  NodePool pool(experts.memory());
  experts.run(table_of(slow_kernel()), &pool);
  const PoolCounts mine = pool.counts();
  std::vector<Index> sums = {mine.tasks, mine.for_others};
  ep.all_sum(std::span(sums));
  const Index blocks = ceil_div(tokens * ep.size(), kGemmRows);
  // Each pass: blocks twice, a panel of either weight; the first writes zeros for the seven others.
  EXPECT_EQ(sums[0], 2 * (2 * blocks + 2) + 2 * 7);
  if (ep.size() == 1)
    EXPECT_EQ(sums[1], 0);
  else
    EXPECT_TRUE(mine.for_others > 0 || ep.rank() == 0) << "of " << sums[0] << " tasks";
}

/// Of ranks by themselves, because in a pool of several the others would wait until the job is ended.
TEST(NodePool, AnExceptionInABlockEndsTheThreadThatWaitsForItAndReachesTheCaller) {
  const Communicator world = Communicator::world();
  const Communicator alone = world.split(world.rank(), 0);
  Experts experts(alone, {"one block", {20}, 1, 1, -1}, Way{});
  NodePool pool(experts.memory());
  KernelTable table = table_of(packed_grouped_matmul());
  table.grouped_matmul.input_grad = [](const GroupedWeights&, const PackedWeights&, ConstRows,
                                       const GroupedRows&, MatrixView) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other thread has a panel by then
    throw Error("no input gradient");
  };
  const Threads threads(2);
  EXPECT_THROW(experts.run(table, &pool), Error);
}

TEST(NodePool, RefusesRowsAndWeightsThatOtherRanksCannotReach) {
  const Communicator ep = Communicator::world();
  const Case c{"even", {8}, 2, 8, -1};
  Experts experts(ep, c, Way{});
  NodePool pool(experts.memory());
  const KernelTable table = table_of(packed_grouped_matmul());
  Matrix gate_up(2 * c.inter, c.hidden), down(c.hidden, c.inter);
  const ExpertShard elsewhere{1, gate_up, down, gate_up, down};
  const std::vector<Index> counts = {3};
  ExpertActivations saved;
  ExpertWorkspace workspace;
  PhaseClock clock;
  saved.rows = Matrix(3, c.hidden);
  saved.weights.assign(3, 1.0f);
  const PackedExperts none;
  const ExpertPass pass{table, elsewhere, none, {counts, 1}, saved, workspace, clock};
  EXPECT_THROW(pool.forward(pass), ShapeError);
  saved.rows.reshape_in(experts.memory(), 3, c.hidden);
  EXPECT_THROW(pool.forward(pass), ShapeError);
}

TEST(NodePool, RefusesAdaptersThatDropInputs) {
  const Communicator ep = Communicator::world();
  const Case c{"even", {8}, 2, 8, -1};
  Experts experts(ep, c, Way{});
  NodePool pool(experts.memory());
  const KernelTable table = table_of(packed_grouped_matmul());
  const Dropout dropout{0.1, 1};
  RowBuffer gate_up(experts.memory()), down(experts.memory()), factors(experts.memory());
  gate_up.reshape_uninitialised(2 * c.inter, c.hidden);
  down.reshape_uninitialised(c.hidden, c.inter);
  factors.reshape_uninitialised(2 * c.inter, c.hidden);
  ExpertShard shard{1, gate_up.view(), down.view(), {}, {}};
  shard.adapters.gate_up = {
      {.a = factors.view().rows_from(0, 1), .b = MatrixView(factors.view().data, 2 * c.inter, 1)}};
  shard.adapters.gate_up.front().dropout = &dropout;
  const std::vector<Index> counts = {0};
  ExpertActivations saved;
  saved.rows.reshape_in(experts.memory(), 0, c.hidden);
  ExpertWorkspace workspace;
  PhaseClock clock;
  const PackedExperts none;
  const ExpertPass pass{table, shard, none, {counts, 1}, saved, workspace, clock};
  EXPECT_THROW(pool.forward(pass), ShapeError);
  saved.gate_up.reshape_in(experts.memory(), 0, 2 * c.inter);
  EXPECT_THROW(pool.backward(pass, Matrix(0, c.hidden), Write::kReplace), ShapeError);
}

}  // namespace
}  // namespace moeloom
