#include "moeloom/moe/expert_parallel.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>
#include <vector>

#include "moe_block.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Block;
using testing::block_kernels;
using testing::BlockWeights;
using testing::largest_ep;
using testing::random_matrix;
using testing::RandomBlock;
using testing::stretch;
using testing::sum_over;

constexpr Index kExperts = 4, kTopK = 2, kHidden = 6, kInter = 5;

/// A rank's part of a block, as a guest has it: plain matrices.
struct Guest {
  ExpertRange held;
  Matrix router, d_router, gate_up, d_gate_up, down, d_down;

  Guest(const BlockWeights& whole, const Communicator& ep)
      : held(experts_of(whole.experts(), ep.size(), ep.rank())),
        router(Matrix::copy_of(whole.router)),
        d_router(router.rows(), router.cols()),
        gate_up(part(whole.gate_up, 2 * whole.inter())),
        d_gate_up(gate_up.rows(), gate_up.cols()),
        down(part(whole.down, whole.hidden())),
        d_down(down.rows(), down.cols()) {}
  Matrix part(const Matrix& all, Index rows) const {
    return Matrix::copy_of(all.view().rows_from(held.begin * rows, held.count * rows));
  }
  ExpertViews experts() { return {gate_up, down, d_gate_up, d_down}; }
  RouterViews routes() { return {router, d_router}; }
};

ExpertParallelSettings with_kernels(const KernelTable& kernels) {
  return {.kernels = kernels, .dispatcher = DispatcherKind::kAlltoall};
}

void expect_same(ConstMatrixView got, ConstMatrixView expected, const char* what) {
  ASSERT_EQ(got.rows, expected.rows) << what;
  for (Index i = 0; i < got.size(); ++i) ASSERT_EQ(got.data[i], expected.data[i]) << what << ' ' << i;
}

TEST(ExpertParallel, ABlockHasTheBitsOfTheLayerOfAModel) {
  const Communicator ep = largest_ep(Communicator::world(), kExperts);
  const BlockWeights weights = RandomBlock{kHidden, kInter}.weights(kExperts, 3);
  const Matrix hidden = random_matrix(9, kHidden, 4), upstream = random_matrix(9, kHidden, 5);
  const ConstMatrixView mine = stretch(hidden, ep), above = stretch(upstream, ep);
  const KernelTable kernels = block_kernels(true);
  Block layer(ep, softmax_router(kExperts, kTopK), weights, kernels);
  layer.run(mine, above);

  Guest guest(weights, ep);
  ExpertParallel over(ep, kExperts, with_kernels(kernels));
  SparseBlock block(over, guest.routes(), softmax_router(kExperts, kTopK), guest.experts());
  Matrix output(mine.rows, kHidden), d_hidden(mine.rows, kHidden);
  block.forward(mine, output);
  block.backward(mine, above, d_hidden);
  expect_same(output, layer.output, "output");
  expect_same(d_hidden, layer.d_hidden, "d_hidden");
  expect_same(guest.d_router, layer.gradients().router, "router");
  expect_same(guest.d_gate_up, layer.gradients().gate_up, "gate_up");
  expect_same(guest.d_down, layer.gradients().down, "down");
  EXPECT_EQ(block.rows(), layer.rows_held());
  EXPECT_EQ(std::ssize(block.chosen().topk_idx), mine.rows * kTopK);
}

/// Expert e of a token x in double: down (silu(gate x) * (up x)).
std::vector<double> expert_of(const BlockWeights& w, Index e, const float* x) {
  const auto dot = [](const float* row, const auto* other, Index n) {
    double sum = 0;
    for (Index i = 0; i < n; ++i) sum += static_cast<double>(row[i]) * static_cast<double>(other[i]);
    return sum;
  };
  std::vector<double> act, out;
  for (Index f = 0; f < kInter; ++f) {
    const double gate = dot(w.gate_up.view().row(e * 2 * kInter + f), x, kHidden);
    act.push_back(gate / (1 + std::exp(-gate)) *
                  dot(w.gate_up.view().row(e * 2 * kInter + kInter + f), x, kHidden));
  }
  for (Index d = 0; d < kHidden; ++d)
    out.push_back(dot(w.down.view().row(e * kHidden + d), act.data(), kInter));
  return out;
}

TEST(ExpertParallel, ExpertsServeARouterOfSomebodyElse) {
  const Communicator ep = largest_ep(Communicator::world(), kExperts);
  const BlockWeights weights = RandomBlock{kHidden, kInter}.weights(kExperts, 13);
  const Matrix x = random_matrix(5 + ep.rank(), kHidden, 14), up = random_matrix(x.rows(), kHidden, 15);
  std::vector<std::int32_t> chosen;
  std::vector<float> by;
  for (Index slot = 0; slot < x.rows() * kTopK; ++slot) {
    chosen.push_back(slot == 3 ? kNoExpert : static_cast<std::int32_t>((slot * 5 + ep.rank()) % kExperts));
    by.push_back(0.25f + 0.125f * static_cast<float>(slot % 5));
  }
  Guest guest(weights, ep);
  ExpertParallel over(ep, kExperts);
  ExpertBlock block(over, guest.experts());
  Matrix output(x.rows(), kHidden), d_x(x.rows(), kHidden);
  block.forward(x, {chosen, by, kTopK}, output);
  const std::span<const float> d_by = block.backward(up, d_x);
  ASSERT_EQ(std::ssize(d_by), x.rows() * kTopK);
  for (Index t = 0; t < x.rows(); ++t) {
    std::vector<double> sum(kHidden);
    for (Index j = 0; j < kTopK; ++j) {
      const auto slot = at(t * kTopK + j);
      double d_weight = 0;
      if (chosen[slot] != kNoExpert) {
        const std::vector<double> y = expert_of(weights, chosen[slot], x.view().row(t));
        for (Index d = 0; d < kHidden; ++d) {
          sum[at(d)] += static_cast<double>(by[slot]) * y[at(d)];
          d_weight += y[at(d)] * static_cast<double>(up.view()(t, d));
        }
      }
      EXPECT_NEAR(d_by[slot], d_weight, 1e-5) << "token " << t << " slot " << j;
    }
    for (Index d = 0; d < kHidden; ++d) EXPECT_NEAR(output.view()(t, d), sum[at(d)], 1e-5) << t << ' ' << d;
  }
  EXPECT_THROW(block.backward(up, d_x), AgreedError) << "once a forward";
}

TEST(ExpertParallel, ABackwardThatWasRefusedIsStillToCome) {
  const Communicator ep = largest_ep(Communicator::world(), kExperts);
  Guest guest(RandomBlock{kHidden, kInter}.weights(kExperts, 25), ep);
  ExpertParallel over(ep, kExperts);
  SparseBlock block(over, guest.routes(), softmax_router(kExperts, kTopK), guest.experts());
  const Matrix rows = random_matrix(3, kHidden, 26), others = random_matrix(2, kHidden, 27);
  Matrix output(3, kHidden), d_hidden(3, kHidden);
  block.forward(rows, output);
  EXPECT_THROW(block.backward(rows, others, d_hidden), AgreedError);
  block.backward(rows, rows, d_hidden);
}

TEST(ExpertParallel, RefusesExpertsThatAreWiderOnOneRank) {
  const Communicator ep = largest_ep(Communicator::world(), kExperts);
  if (ep.size() == 1) GTEST_SKIP() << "of several ranks";
  const Index hidden = ep.rank() == 0 ? kHidden : 2 * kHidden;
  Guest guest(RandomBlock{hidden, kInter}.weights(kExperts, 28), ep);
  ExpertParallel over(ep, kExperts);
  EXPECT_THROW(ExpertBlock(over, guest.experts()), AgreedError);
  EXPECT_THROW(SparseBlock(over, guest.routes(), softmax_router(kExperts, kTopK), guest.experts()),
               AgreedError);
}

TEST(ExpertParallel, AddsTheGradientOfTheLossOfBalance) {
  const Communicator ep = largest_ep(Communicator::world(), kExperts);
  const BlockWeights weights = RandomBlock{kHidden, kInter}.weights(kExperts, 23);
  const Matrix hidden = random_matrix(16, kHidden, 24);
  const ConstMatrixView mine = stretch(hidden, ep);
  const Matrix nothing(mine.rows, kHidden);
  Guest guest(weights, ep);
  ExpertParallel over(ep, kExperts);
  SparseBlock block(over, guest.routes(), softmax_router(kExperts, kTopK), guest.experts(), 0.5);
  Matrix output(mine.rows, kHidden), d_hidden(mine.rows, kHidden);
  block.forward(mine, output);
  block.backward(mine, nothing, d_hidden);
  const Matrix gradient = sum_over(ep, guest.d_router);
  constexpr float kStep = 1.0f / 256;
  for (Index d = 0; d < kHidden; ++d) {
    double loss[2];
    for (const int side : {0, 1}) {
      guest.router.view()(1, d) = weights.router.view()(1, d) + (side == 0 ? -kStep : kStep);
      loss[side] = block.forward(mine, output);
    }
    guest.router.view()(1, d) = weights.router.view()(1, d);
    EXPECT_NEAR(gradient.view()(1, d), 0.5 * (loss[1] - loss[0]) / (2 * kStep), 1e-4) << d;
  }
}

TEST(ExpertParallel, SeesThatWeightsHaveChangedUnlessTheyAreSaidToStay) {
  const Communicator ep = largest_ep(Communicator::world(), kExperts);
  const BlockWeights weights = RandomBlock{kHidden, kInter}.weights(kExperts, 43);
  const Matrix x = random_matrix(64, kHidden, 44);
  for (const bool stay : {false, true}) {
    Guest guest(weights, ep);
    ExpertParallelSettings settings = with_kernels(block_kernels(true));
    settings.weights_stay = stay;
    ExpertParallel over(ep, kExperts, settings);
    SparseBlock block(over, guest.routes(), softmax_router(kExperts, kTopK), guest.experts());
    const auto output = [&] {
      Matrix y(x.rows(), kHidden);
      block.forward(x, y);
      return y;
    };
    const Matrix before = output();
    for (float& weight : guest.down.view().flat()) weight *= 2;
    const Matrix after = output();
    block.weights_changed();
    const Matrix told = output();
    for (Index i = 0; i < before.view().size(); ++i) {
      ASSERT_EQ(told.view().data[i], 2 * before.view().data[i]);
      ASSERT_EQ(after.view().data[i], stay ? before.view().data[i] : told.view().data[i]);
    }
  }
}

TEST(ExpertParallel, OneRankWithoutTokensGivesAnEmptyViewAndOneThatIsWrongTellsAll) {
  const Communicator ep = largest_ep(Communicator::world(), kExperts);
  const BlockWeights weights = RandomBlock{kHidden, kInter}.weights(kExperts, 53);
  Guest guest(weights, ep);
  ExpertParallel over(ep, kExperts);
  ExpertBlock block(over, guest.experts());
  const Index tokens = ep.rank() == 0 ? 0 : 7;
  const Matrix x = tokens == 0 ? Matrix() : random_matrix(tokens, kHidden, 54);
  Matrix output = tokens == 0 ? Matrix() : Matrix(tokens, kHidden), d_x = Matrix::copy_of(output);
  std::vector<std::int32_t> chosen(at(tokens), 0);
  const std::vector<float> by(at(tokens), 1.0f);
  block.forward(x, {chosen, by, 1}, output);
  EXPECT_EQ(std::ssize(block.backward(output, d_x)), tokens);
  const bool last = ep.rank() == ep.size() - 1;
  if (last && tokens > 0) chosen.back() = kExperts;
  if (ep.size() > 1) {
    EXPECT_THROW(block.forward(x, {chosen, by, 1}, output), AgreedError);
    if (last) chosen.back() = 0;
    block.forward(x, {chosen, by, 1}, output);
  }
}

TEST(ExpertParallel, SaysWhatDoesNotFit) {
  const Communicator self = Communicator::self();
  const BlockWeights weights = RandomBlock{kHidden, kInter}.weights(kExperts, 33);
  Guest guest(weights, self);
  ExpertParallel over(self, kExperts);
  EXPECT_EQ(over.num_experts(), kExperts);
  ExpertViews experts = guest.experts();
  experts.d_down = guest.d_gate_up;
  EXPECT_THROW(ExpertBlock(over, experts), AgreedError);
  ExpertParallel fewer(self, kExperts - 1);
  EXPECT_THROW(ExpertBlock(fewer, guest.experts()), AgreedError);
  EXPECT_THROW(SparseBlock(over, guest.routes(), softmax_router(kExperts + 1, 1), guest.experts()),
               AgreedError);
  ExpertBlock block(over, guest.experts());
  const Matrix x(2, kHidden);
  Matrix output(2, kHidden);
  const std::vector<std::int32_t> one = {0};
  EXPECT_THROW(block.forward(x, {one, std::vector<float>{1}, 1}, output), AgreedError);
  EXPECT_THROW(ExpertParallel(self, 0), ConfigError);
  EXPECT_THROW(ExpertParallel(self, kExperts, {.chunks = -1}), ConfigError);
  EXPECT_THROW(SparseBlock(over, guest.routes(), softmax_router(kExperts, kExperts + 1), guest.experts()),
               AgreedError);
  RouterSettings by_id = softmax_router(kExperts, 1);
  by_id.choose_by = ChooseBy::kHash;
  EXPECT_THROW(SparseBlock(over, guest.routes(), by_id, guest.experts()), AgreedError);
  EXPECT_THROW(SparseBlock(over, {guest.router, guest.d_down}, softmax_router(kExperts, 1), guest.experts()),
               AgreedError);
}

}  // namespace
}  // namespace moeloom
