#include "moe/moe_layer.hpp"

#include "tensor/tree_sum.hpp"

#include <array>
#include <cmath>

#include "moe_block.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Block;
using testing::block_kernels;
using testing::BlockWeights;
using testing::random_matrix;
using testing::RandomBlock;
using testing::stretch;
using testing::sum_over;

/// What a test spreads over ranks: tokens of all of them in order.
struct Shape {
  const char* name;
  RandomBlock block;
  RouterSettings router;
};

std::vector<Shape> shapes() {
  const RouterSettings sigmoid{.num_experts = 8,
                               .top_k = 3,
                               .score = RouterScore::kSigmoid,
                               .num_groups = 4,
                               .topk_group = 2,
                               .scaling_factor = 2.5f};
  return {{"normalised", {6, 5}, softmax_router(4, 2)},
          {"not normalised", {6, 5}, softmax_router(4, 2, false)},
          {"one expert", {6, 5}, softmax_router(1, 1)},
          {"one expert, not normalised, gated shared one", {6, 5, 3, true}, softmax_router(1, 1, false)},
          {"every expert", {6, 5}, softmax_router(4, 4)},
          {"a shared expert", {5, 4, 7}, softmax_router(4, 2)},
          {"a gated shared expert", {5, 4, 7, true}, softmax_router(4, 3, false)},
          {"gelu, exact", {5, 4, 3, true, {Activation::kGelu}}, softmax_router(4, 2)},
          {"gelu by tanh", {5, 4, 3, false, {Activation::kGeluTanh}}, softmax_router(4, 2)},
          {"sigmoid scores, groups, scaling, a shared expert", {6, 3, 6}, sigmoid},
          {"the sigmoid of the chosen logit on the input, as Llama 4",
           {6, 5, 3},
           {.num_experts = 4,
            .top_k = 2,
            .choose_by = ChooseBy::kLogit,
            .weigh_by = WeighBy::kSigmoidOfLogit,
            .divide = {DivideBy::kNothing},
            .weight_on_input = true}},
          {"a softmax over the chosen, as gpt-oss",
           {6, 5},
           {.num_experts = 4,
            .top_k = 3,
            .choose_by = ChooseBy::kLogit,
            .weigh_by = WeighBy::kSoftmaxOfChosen,
            .divide = {DivideBy::kNothing}}},
          {"roots of softplus over at least 4, on the input, gelu",
           {5, 4, 0, false, {Activation::kGelu}},
           {.num_experts = 4,
            .top_k = 2,
            .score = RouterScore::kSqrtSoftplus,
            .divide = {DivideBy::kSumAtLeast, 4},
            .scaling_factor = 1.5f,
            .weight_on_input = true}}};
}

std::vector<double> doubles(const Matrix& m) {
  return {m.view().flat().begin(), m.view().flat().end()};
}

double activated(Activation act, double x) {
  switch (act) {
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    default:
      return x / (1 + std::exp(-x));
  }
}

/// <upstream, block(hidden)> on one process, in double, from the formulas.
struct Reference {
  enum Part { kRouter, kGateUp, kDown, kSharedGateUp, kSharedDown, kSharedGate, kHidden };

  RouterSettings router;
  Index hidden, inter, shared;
  Activation act;
  std::array<std::vector<double>, 7> parts;
  std::vector<double> upstream;
  std::vector<std::int32_t> chosen;  // constant under differentiation

  double dot(Part part, Index row, Index token) const {
    double sum = 0;
    for (Index d = 0; d < hidden; ++d)
      sum += parts[part][at(row * hidden + d)] * parts[kHidden][at(token * hidden + d)];
    return sum;
  }

  /// <upstream, an MLP> of a token; its gate begins at `gate_row`, its down matrix at `down_row`.
  double mlp(Part gate_up, Index gate_row, Part down, Index down_row, Index width, Index token,
             double of_input = 1) const {
    double sum = 0;
    for (Index f = 0; f < width; ++f) {
      const double gate = activated(act, of_input * dot(gate_up, gate_row + f, token));
      const double a = gate * of_input * dot(gate_up, gate_row + width + f, token);
      for (Index d = 0; d < hidden; ++d)
        sum += a * parts[down][at((down_row + d) * width + f)] * upstream[at(token * hidden + d)];
    }
    return sum;
  }

  /// Weights of a token's slots.
  std::vector<double> weights_of(Index token) const {
    std::vector<double> values;
    double all = 0, sum = 0;
    for (Index e = 0; e < router.num_experts; ++e) all += std::exp(dot(kRouter, e, token));
    for (Index slot = token * router.top_k; slot < (token + 1) * router.top_k; ++slot) {
      const double logit = dot(kRouter, chosen[at(slot)], token), power = std::exp(logit);
      const bool root = router.score == RouterScore::kSqrtSoftplus;
      double value = root ? std::sqrt(std::log1p(power))
                          : power / (router.score == RouterScore::kSigmoid ? 1 + power : all);
      if (router.weigh_by == WeighBy::kSigmoidOfLogit) value = power / (1 + power);
      if (router.weigh_by == WeighBy::kSoftmaxOfChosen) value = power;
      values.push_back(value);
      sum += value;
    }
    double divided = router.divide.by == DivideBy::kNothing ? 1 : sum;
    if (router.divide.by == DivideBy::kSumAtLeast) divided = std::max<double>(sum, router.divide.number);
    if (router.weigh_by == WeighBy::kSoftmaxOfChosen) divided = sum;
    for (double& value : values) value *= router.scaling_factor / divided;
    return values;
  }

  double routed(Index token) const {
    const std::vector<double> weights = weights_of(token);
    double sum = 0;
    for (Index j = 0; j < router.top_k; ++j) {
      const Index e = chosen[at(token * router.top_k + j)];
      const double weight = weights[at(j)];
      const bool on_input = router.weight_on_input;
      sum += (on_input ? 1 : weight) *
             mlp(kGateUp, 2 * e * inter, kDown, e * hidden, inter, token, on_input ? weight : 1);
    }
    return sum;
  }

  double loss() const {
    double sum = 0;
    for (Index t = 0; t < static_cast<Index>(upstream.size()) / hidden; ++t) {
      sum += routed(t);
      if (shared == 0) continue;
      const double gate = parts[kSharedGate].empty() ? 1 : 1 / (1 + std::exp(-dot(kSharedGate, 0, t)));
      sum += gate * mlp(kSharedGateUp, 0, kSharedDown, 0, shared, t);
    }
    return sum;
  }

  double slope(Part part, Index i) {
    constexpr double kStep = 1e-5;
    double& x = parts[part][at(i)];
    const double value = x;
    x = value + kStep;
    const double above = loss();
    x = value - kStep;
    const double below = loss();
    x = value;
    return (above - below) / (2 * kStep);
  }

  /// got's elements are those of `part` from `first` on.
  void expect(Part part, Index first, ConstMatrixView got) {
    for (Index i = 0; i < got.size(); ++i)  // sums of some tens of fp32 products of order 1
      EXPECT_NEAR(got.data[i], slope(part, first + i), 2e-5) << "part " << part << " element " << first + i;
  }
};

double dot_over(const Communicator& ep, ConstMatrixView a, ConstMatrixView b) {
  double sum = 0;
  for (Index i = 0; i < a.size(); ++i) sum += static_cast<double>(a.data[i]) * b.data[i];
  ep.all_sum(std::span(&sum, 1));
  return sum;
}

TEST(MoeLayer, ForwardAndBackwardMatchTheFormulasAndTheirDifferencesInDouble) {
  const Communicator world = Communicator::world();
  constexpr Index kTokens = 7;
  for (const Shape& s : shapes()) {
    SCOPED_TRACE(s.name);
    const Communicator ep = testing::largest_ep(world, s.router.num_experts);
    const BlockWeights weights = s.block.weights(s.router.num_experts, 31);
    const Matrix hidden = random_matrix(kTokens, s.block.hidden, 38);
    const Matrix upstream = random_matrix(kTokens, s.block.hidden, 39);
    Block block(ep, s.router, weights, block_kernels(true));
    block.run(stretch(hidden, ep), stretch(upstream, ep));
    Routing all;
    Matrix logits(kTokens, s.router.num_experts);
    matmul(hidden, weights.router, logits);
    route(logits, s.router, all);

    Reference reference{s.router,
                        s.block.hidden,
                        s.block.inter,
                        s.block.shared,
                        s.block.activation.act,
                        {doubles(weights.router), doubles(weights.gate_up), doubles(weights.down),
                         doubles(weights.shared_gate_up), doubles(weights.shared_down),
                         doubles(weights.shared_gate), doubles(hidden)},
                        doubles(upstream),
                        all.topk_idx};
    // 42 numbers of order 1, each off by some units of 1e-7.
    EXPECT_NEAR(dot_over(ep, block.output, stretch(upstream, ep)), reference.loss(), 2e-5);
    const BlockWeights& gradients = block.gradients();
    const Index first_expert = block.held().begin;
    reference.expect(Reference::kGateUp, first_expert * 2 * s.block.inter * s.block.hidden,
                     gradients.gate_up);
    reference.expect(Reference::kDown, first_expert * s.block.hidden * s.block.inter, gradients.down);
    reference.expect(Reference::kHidden, stretch(hidden, ep).data - hidden.view().data, block.d_hidden);
    reference.expect(Reference::kRouter, 0, sum_over(ep, gradients.router));
    reference.expect(Reference::kSharedGateUp, 0, sum_over(ep, gradients.shared_gate_up));
    reference.expect(Reference::kSharedDown, 0, sum_over(ep, gradients.shared_down));
    reference.expect(Reference::kSharedGate, 0, sum_over(ep, gradients.shared_gate));
  }
}

void expect_same_bits(ConstMatrixView got, ConstMatrixView expected, const std::string& what) {
  ASSERT_EQ(got.rows, expected.rows) << what;
  ASSERT_EQ(got.cols, expected.cols) << what;
  for (Index i = 0; i < got.size(); ++i) ASSERT_EQ(got.data[i], expected.data[i]) << what << ' ' << i;
}

TEST(MoeLayer, HasTheSameBitsSpreadOverRanksAsOnOneRank) {
  const Communicator world = Communicator::world();
  if (world.size() == 3) GTEST_SKIP() << "3 is no power of two: its rows are no subtree of the one order";
  const RandomBlock block{24, 20, 28, true};
  const RouterSettings router = softmax_router(8, 3);
  const Index tokens = 300 * world.size();
  const BlockWeights weights = block.weights(8, 41);
  const Matrix hidden = random_matrix(tokens, 24, 48);
  const Matrix upstream = random_matrix(tokens, 24, 49);
  Block spread(world, router, weights, block_kernels(true));
  spread.run(stretch(hidden, world), stretch(upstream, world));

  // Alone: every rank's tokens in turn on all experts, gradients added along the tree afterwards.
  const Communicator self = Communicator::self();
  std::vector<Matrix> d_gate_up;
  for (int rank = 0; rank < world.size(); ++rank) {
    Block alone(self, router, weights, block_kernels(true));
    alone.run(stretch(hidden, rank, world.size()), stretch(upstream, rank, world.size()));
    d_gate_up.push_back(Matrix::copy_of(alone.gradients().gate_up));
    if (rank != world.rank()) continue;
    expect_same_bits(spread.output, alone.output, "output");
    expect_same_bits(spread.d_hidden, alone.d_hidden, "d_hidden");
    expect_same_bits(spread.gradients().router, alone.gradients().router, "router gradient");
    expect_same_bits(spread.gradients().shared_gate_up, alone.gradients().shared_gate_up, "shared gate_up's");
    expect_same_bits(spread.gradients().shared_down, alone.gradients().shared_down, "shared down's");
    expect_same_bits(spread.gradients().shared_gate, alone.gradients().shared_gate, "shared gate's");
  }
  const ConstMatrixView mine = spread.gradients().gate_up;
  const Index first = spread.held().begin * 2 * block.inter * block.hidden;
  for (Index i = 0; i < mine.size(); ++i) {
    const float expected =
        tree_sum(0, world.size(), [&](Index rank) { return d_gate_up[at(rank)].view().data[first + i]; });
    ASSERT_EQ(mine.data[i], expected) << "gate_up gradient " << i;
  }
}

TEST(MoeLayer, LeavesOutTheGradientOfAFrozenWeightAndChangesNoOther) {
  const Communicator world = Communicator::world();
  const RandomBlock shape{6, 5, 4, true};
  const BlockWeights weights = shape.weights(4, 51);
  const Matrix hidden = random_matrix(7, 6, 58);
  const Matrix upstream = random_matrix(7, 6, 59);
  const std::map<std::string, Matrix BlockWeights::*> named = {
      {"router", &BlockWeights::router},
      {"gate_up", &BlockWeights::gate_up},
      {"down", &BlockWeights::down},
      {"shared_gate_up", &BlockWeights::shared_gate_up},
      {"shared_down", &BlockWeights::shared_down},
      {"shared_gate", &BlockWeights::shared_gate}};
  const auto run = [&](bool grouped, const std::set<std::string>& frozen) {
    auto block =
        std::make_unique<Block>(world, softmax_router(4, 2), weights, block_kernels(grouped), frozen);
    block->run(stretch(hidden, world), stretch(upstream, world));
    return block;
  };
  for (const bool grouped : {false, true}) {
    const auto trained = run(grouped, {});
    std::vector<std::set<std::string>> choices = {
        {"router", "gate_up", "down", "shared_gate_up", "shared_down", "shared_gate"}};
    for (const auto& [name, part] : named) choices.push_back({name});
    for (const auto& frozen : choices) {
      const auto block = run(grouped, frozen);
      expect_same_bits(block->output, trained->output, "output");
      expect_same_bits(block->d_hidden, trained->d_hidden, "d_hidden");
      for (const auto& [name, part] : named) {
        if (frozen.contains(name)) {
          EXPECT_EQ((block->gradients().*part).rows(), 0);
        } else {
          expect_same_bits(block->gradients().*part, trained->gradients().*part, name);
        }
      }
    }
  }
}

}  // namespace
}  // namespace moeloom
