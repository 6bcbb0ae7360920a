// Experts, a shared expert and a router whose adapters drop inputs. Where all rows are equal, so are their
// masks, and an adapter without dropout whose A is m .* A / (1 - p) computes the same: the whole block is
// compared with that one, backward and all.
#include "moe/experts/shared_expert.hpp"
#include "moe/routing/router_layer.hpp"
#include "moeloom/base/errors.hpp"

#include <cmath>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

constexpr Index kRowWidth = 20, kInnerWidth = 12, kFactorRank = 3;
constexpr Dropout kDropout{0.4, 9};

/// An addition to all of `groups` weights [out, in].
struct DroppingFactors {
  Matrix a, b, d_a, d_b;
  Dropout dropout = kDropout;
  std::uint64_t stream;

  DroppingFactors(Index groups, Index out, Index in, std::uint64_t stream)
      : a(random_matrix(groups * kFactorRank, in, 30 + stream, 0.3)),
        b(random_matrix(groups * out, kFactorRank, 40 + stream, 0.3)),
        d_a(groups * kFactorRank, in),
        d_b(groups * out, kFactorRank),
        stream(stream) {}
  DroppingFactors(const DroppingFactors&) = delete;
  DroppingFactors& operator=(const DroppingFactors&) = delete;

  LowRank part() {
    return {.a = a, .b = b, .d_a = d_a, .d_b = d_b, .scale = 2, .dropout = &dropout, .stream = stream};
  }
  Matrix mask(std::uint64_t key) const {
    Matrix ones(1, a.cols()), kept(1, a.cols());
    fill(ones, 1);
    InputMask(dropout, stream).keep({&key, 1}, ones, kept.view());
    return kept;
  }
  /// m .* rows / (1 - p)
  void fold_into(MatrixView rows, std::uint64_t key) const {
    const Matrix m = mask(key);
    for (Index i = 0; i < rows.rows; ++i)
      for (Index j = 0; j < rows.cols; ++j)
        rows(i, j) *= m.view()(0, j) / static_cast<float>(1 - kDropout.share);
  }
  /// Computes the same as before where all rows have this key.
  void fold(std::uint64_t key) {
    fold_into(a, key);
    dropout = {};
  }
};

/// To 2e-6 of the largest, 17 roundings: a mask is multiplied in another place of each sum.
void expect_all_near(ConstMatrixView got, ConstMatrixView expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double largest = 0, gap = 0;
  for (Index i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(expected.data[i])));
    gap = std::max(gap, std::abs(static_cast<double>(got.data[i]) - expected.data[i]));
  }
  EXPECT_GT(largest, 0.01) << what;
  EXPECT_LE(gap / largest, 2e-6) << what;
}

/// Gradients of folded factors say what those of the factors must be.
void expect_same_gradients(const DroppingFactors& got, DroppingFactors& folded, std::uint64_t key,
                           const char* what) {
  expect_all_near(got.d_b, folded.d_b, what);
  folded.dropout = kDropout;
  folded.fold_into(folded.d_a, key);
  expect_all_near(got.d_a, folded.d_a, what);
}

Matrix equal_rows(Index rows) {
  const Matrix row = random_matrix(1, kRowWidth, 3);
  Matrix all(rows, kRowWidth);
  for (Index i = 0; i < rows; ++i) copy(row, all.view().rows_from(i, 1));
  return all;
}

std::uint64_t key_of(ConstMatrixView rows) {
  return row_keys(rows.rows_from(0, 1)).front();
}

struct DroppingShard {
  Matrix gate_up = random_matrix(2 * 2 * kInnerWidth, kRowWidth, 1, 0.3),
         down = random_matrix(2 * kRowWidth, kInnerWidth, 2, 0.3);
  Matrix gate_up_bias = random_matrix(2, 2 * kInnerWidth, 5, 0.3),
         down_bias = random_matrix(2, kRowWidth, 6, 0.3);
  DroppingFactors first{2, 2 * kInnerWidth, kRowWidth, 1}, second{2, kRowWidth, kInnerWidth, 2};
  ExpertShard view{2, gate_up, down, {}, {}};

  explicit DroppingShard(bool biased) {
    view.adapters = {{first.part()}, {second.part()}};
    if (!biased) return;
    view.biases = {gate_up_bias, down_bias, {}, {}};
    view.activation.scale_on = RowScaleOn::kInputs;  // backward changes X before its gradients
  }
};

struct ExpertRun {
  ExpertActivations saved;
  ExpertWorkspace workspace;
  Matrix output;

  /// A chunk an expert.
  ExpertRun(const KernelTable& kernels, DroppingShard& shard, ConstMatrixView d_rows) {
    const std::vector<Index> counts = {5, 3};
    saved.rows = equal_rows(8);
    for (Index i = 0; i < 8; ++i) saved.weights.push_back(0.3f + 0.1f * static_cast<float>(i));
    PhaseClock clock;
    const PackedExperts packed;
    const ExpertPass pass{kernels, shard.view, packed, {counts, 1}, saved, workspace, clock};
    const std::vector<ExpertChunk> chunks = {{{0, 1}, {0, 5}}, {{1, 2}, {5, 8}}};
    workspace.output.reshape_uninitialised(8, kRowWidth);
    prepare_forward(pass);
    for (const ExpertChunk& chunk : chunks) forward_chunk(pass, chunk);
    output = Matrix::copy_of(workspace.output);
    prepare_backward(pass);
    for (const ExpertChunk& chunk : chunks) {
      backward_chunk(pass, chunk, d_rows);
      weight_gradients(pass, chunk, d_rows, Write::kReplace);
    }
  }
};

TEST(ExpertDropout, IsAnAdapterWithoutItWhereAllRowsAreEqual) {
  for (const bool grouped : {false, true})
    for (const bool biased : {false, true}) {
      SCOPED_TRACE(std::string(grouped ? "grouped" : "loop") + (biased ? ", biased" : ""));
      KernelTable kernels;
      if (grouped)
        kernels.grouped_matmul = packed_grouped_matmul(), kernels.grouped_matmul.uses_packed = false;
      DroppingShard dropping(biased), folded(biased), keeping(biased);
      const std::uint64_t key = key_of(equal_rows(1));
      for (DroppingFactors* factors : {&folded.first, &folded.second}) factors->fold(key);
      for (DroppingFactors* factors : {&keeping.first, &keeping.second}) factors->dropout = {};
      const Matrix d_rows = random_matrix(8, kRowWidth, 4);
      ExpertRun got(kernels, dropping, d_rows), expected(kernels, folded, d_rows);
      const ExpertRun without(kernels, keeping, d_rows);
      EXPECT_EQ(std::ssize(got.saved.keys), 8);
      EXPECT_TRUE(without.saved.keys.empty());
      expect_all_near(got.output, expected.output, "y");
      expect_all_near(got.workspace.output, expected.workspace.output, "dx");
      for (std::size_t i = 0; i < 8; ++i)
        EXPECT_NEAR(got.workspace.d_weights[i], expected.workspace.d_weights[i], 1e-4);
      EXPECT_NE(got.output.view()(0, 0), without.output.view()(0, 0));
      expect_same_gradients(dropping.first, folded.first, key, "gate_up");
      expect_same_gradients(dropping.second, folded.second, key, "down");
    }
}

struct DroppingShared {
  Matrix gate_up = random_matrix(2 * kInnerWidth, kRowWidth, 1, 0.3),
         down = random_matrix(kRowWidth, kInnerWidth, 2, 0.3);
  Matrix gate = random_matrix(1, kRowWidth, 3);
  DroppingFactors first{1, 2 * kInnerWidth, kRowWidth, 1}, second{1, kRowWidth, kInnerWidth, 2};
  Matrix output{8, kRowWidth}, dx{8, kRowWidth};

  void run(ConstMatrixView d_output) {
    SharedExpert expert({.gate_up = gate_up,
                         .down = down,
                         .gate = gate,
                         .d_gate_up = {},
                         .d_down = {},
                         .adapters = {{first.part()}, {second.part()}}});
    SharedExpertWorkspace workspace;
    const Matrix x = equal_rows(8);
    expert.forward({}, x, output, workspace);
    expert.backward({}, x, d_output, dx, workspace);
  }
};

TEST(ExpertDropout, OfASharedExpertToo) {
  DroppingShared dropping, folded;
  const std::uint64_t key = key_of(equal_rows(1));
  for (DroppingFactors* factors : {&folded.first, &folded.second}) factors->fold(key);
  const Matrix d_output = random_matrix(8, kRowWidth, 4);
  dropping.run(d_output);
  folded.run(d_output);
  expect_all_near(dropping.output, folded.output, "y");
  expect_all_near(dropping.dx, folded.dx, "dx");
  expect_same_gradients(dropping.first, folded.first, key, "gate_up");
  expect_same_gradients(dropping.second, folded.second, key, "down");
}

struct DroppingRouter {
  static constexpr Index kExperts = 4, kTokens = 8;
  Matrix weight = random_matrix(kExperts, kRowWidth, 1, 0.3);
  DroppingFactors factors{1, kExperts, kRowWidth, 1};
  Matrix logits, dx{kTokens, kRowWidth};
  std::vector<float> d_weights = std::vector<float>(kTokens * kExperts);
  Routing routing;
  RouterLayer layer;

  DroppingRouter()
      : layer({.weight = weight, .d_weight = {}, .adapter = {factors.part()}},
              softmax_router(kExperts, kExperts, false), 0) {
    const Matrix d = random_matrix(kTokens, kExperts, 8);
    std::ranges::copy(d.view().flat(), d_weights.begin());
  }
  /// -> <d, w> of the weights w by expert, which backward makes gradients of
  double forward(ConstMatrixView x) {
    layer.forward({.training = true, .tokens_per_sequence = kTokens}, x, logits, routing);
    double sum = 0;
    for (Index t = 0; t < kTokens; ++t)
      for (Index k = 0; k < kExperts; ++k)
        sum += static_cast<double>(routing.scores.view()(t, routing.topk_idx[at(t * kExperts + k)])) *
               d_weights[at(t * kExperts + routing.topk_idx[at(t * kExperts + k)])];
    return sum;
  }
  void backward(ConstMatrixView x) {
    std::vector<float> by_slot(d_weights.size());
    for (std::size_t slot = 0; slot < by_slot.size(); ++slot)
      by_slot[slot] = d_weights[slot / kExperts * kExperts + at(routing.topk_idx[slot])];
    layer.backward({.training = true, .tokens_per_sequence = kTokens}, x, routing, by_slot, {}, logits, dx);
  }
};

TEST(ExpertDropout, OfARouterToo) {
  DroppingRouter dropping, folded;
  const Matrix x = equal_rows(DroppingRouter::kTokens);
  folded.factors.fold(key_of(x));
  folded.layer = RouterLayer({.weight = folded.weight, .d_weight = {}, .adapter = {folded.factors.part()}},
                             softmax_router(DroppingRouter::kExperts, DroppingRouter::kExperts, false), 0);
  EXPECT_NEAR(dropping.forward(x), folded.forward(x), 1e-5);
  dropping.backward(x);
  folded.backward(x);
  expect_all_near(dropping.dx, folded.dx, "dx");
  expect_same_gradients(dropping.factors, folded.factors, key_of(x), "router");
}

/// By central differences.
TEST(ExpertDropout, OfARouterHasItsGradients) {
  DroppingRouter router;
  const Matrix x = random_matrix(DroppingRouter::kTokens, kRowWidth, 5);
  router.forward(x);
  router.backward(x);
  const auto expect_gradient = [&](MatrixView numbers, ConstMatrixView gradient) {
    for (Index i = 0; i < numbers.size(); i += 3) {
      float& number = numbers.data[i];
      const float before = number;
      constexpr float kStep = 0.02f;
      number = before + kStep;
      const double above = router.forward(x);
      number = before - kStep;
      const double below = router.forward(x);
      number = before;
      EXPECT_NEAR(gradient.data[i], (above - below) / (2 * kStep), 2e-3) << i;
    }
  };
  expect_gradient(router.factors.a, router.factors.d_a);
  expect_gradient(router.factors.b, router.factors.d_b);
}

}  // namespace
}  // namespace moeloom
