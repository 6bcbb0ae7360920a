#include "moe/experts/experts.hpp"

#include "base/meanwhile.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

enum class Ways { kPlain, kBiased, kBiasedWithWeightOnInput };

struct Shard {
  Matrix gate_up, down, d_gate_up, d_down;
  Matrix gate_up_bias, down_bias, d_gate_up_bias, d_down_bias;
  ExpertShard view;
  Shard(Index experts, Index hidden, Index inter, Ways ways = Ways::kPlain)
      : gate_up(random_matrix(experts * 2 * inter, hidden, 1, 0.3)),
        down(random_matrix(experts * hidden, inter, 2, 0.3)),
        d_gate_up(gate_up.rows(), hidden),
        d_down(down.rows(), inter),
        gate_up_bias(random_matrix(experts, 2 * inter, 5, 0.3)),
        down_bias(random_matrix(experts, hidden, 6, 0.3)),
        d_gate_up_bias(experts, 2 * inter),
        d_down_bias(experts, hidden),
        view{experts, gate_up, down, d_gate_up, d_down} {
    if (ways == Ways::kPlain) return;
    view.biases = {gate_up_bias, down_bias, d_gate_up_bias, d_down_bias};
    if (ways == Ways::kBiasedWithWeightOnInput) view.activation.scale_on = RowScaleOn::kInputs;
  }
  std::vector<Matrix*> gradients() { return {&d_gate_up, &d_down, &d_gate_up_bias, &d_down_bias}; }
};

void run(const KernelTable& kernels, Shard& shard, const PackedExperts& packed,
         const std::vector<Index>& rows, ExpertActivations& saved, ExpertWorkspace& workspace) {
  Index total = 0;
  for (const Index r : rows) total += r;
  saved.rows = random_matrix(total, shard.gate_up.cols(), 3);
  saved.weights.assign(static_cast<std::size_t>(total), 0.5f);
  PhaseClock clock;
  experts_forward({kernels, shard.view, packed, {rows, 1}, saved, workspace, clock});
}

std::vector<float> floats_of(ConstMatrixView m) {
  const auto flat = m.flat();
  return {flat.begin(), flat.end()};
}

TEST(Experts, GroupedAndLoopAgreeForEveryDivisionOfRows) {
  for (const std::vector<Index>& rows : {std::vector<Index>{0, 0, 0}, {1, 0, 0}, {0, 300, 0}, {5, 17, 64}}) {
    KernelTable loop;
    KernelTable grouped;
    grouped.grouped_matmul = packed_grouped_matmul();
    Shard a(3, 20, 12);
    Shard b(3, 20, 12);
    PackedExperts packed;
    packed.refresh(grouped.grouped_matmul, b.view, 1);
    ExpertActivations saved_a, saved_b;
    ExpertWorkspace work_a, work_b;
    run(loop, a, {}, rows, saved_a, work_a);
    run(grouped, b, packed, rows, saved_b, work_b);
    const Matrix d_rows = random_matrix(work_a.output.rows(), 20, 4);
    for (Index i = 0; i < work_a.output.view().size(); ++i)
      EXPECT_NEAR(work_a.output.view().data[i], work_b.output.view().data[i], 1e-5);
    fill(b.d_gate_up, 5.0f);  // to be written, also where an expert has no row
    fill(b.d_down, 5.0f);
    PhaseClock clock;
    experts_backward({loop, a.view, {}, {rows, 1}, saved_a, work_a, clock}, d_rows, Write::kAdd);
    experts_backward({grouped, b.view, packed, {rows, 1}, saved_b, work_b, clock}, d_rows, Write::kReplace);
    for (Index i = 0; i < work_a.output.view().size(); ++i)
      EXPECT_NEAR(work_a.output.view().data[i], work_b.output.view().data[i], 2e-5);
    for (std::size_t i = 0; i < work_a.d_weights.size(); ++i)
      EXPECT_NEAR(work_a.d_weights[i], work_b.d_weights[i], 1e-4);
    for (Index i = 0; i < a.d_gate_up.view().size(); ++i)
      EXPECT_NEAR(a.d_gate_up.view().data[i], b.d_gate_up.view().data[i], 2e-4);  // sums of up to 300 rows
    for (Index i = 0; i < a.d_down.view().size(); ++i)
      EXPECT_NEAR(a.d_down.view().data[i], b.d_down.view().data[i], 2e-4);
  }
}

/// The bits of activations that stay fp32 and are rounded by each product: what bf16 rows must not change.
TEST(Experts, InBf16EqualsProductsThatRoundFp32RowsThemselves) {
  const std::vector<Index> counts = {5, 0, 33};
  const GroupedRows rows{counts, 1};
  KernelTable kernels;
  kernels.grouped_matmul = packed_bf16_grouped_matmul();
  kernels.grouped_matmul.uses_packed = false;
  kernels.swiglu = fused_swiglu();
  Shard shard(3, 20, 13);  // an odd width: the last word of a row is half empty
  ExpertActivations saved;
  ExpertWorkspace workspace;
  run(kernels, shard, {}, counts, saved, workspace);

  const GroupedMatmulKernel& product = kernels.grouped_matmul;
  const GroupedWeights gate_up = shard.view.gate_up_weights(), down = shard.view.down_weights();
  Matrix z(38, 26), activated(38, 13), y(38, 20);
  product.forward(gate_up, {}, saved.rows.view(), rows, z);
  kernels.swiglu.forward({}, z, saved.weights, activated);
  product.forward(down, {}, activated, rows, y);
  EXPECT_EQ(floats_of(workspace.output), floats_of(y));

  const Matrix d_rows = random_matrix(38, 20, 4);
  PhaseClock clock;
  experts_backward({kernels, shard.view, {}, rows, saved, workspace, clock}, d_rows, Write::kReplace);
  Matrix d_activated(38, 13), dx(38, 20), d_down(60, 13), d_gate_up(78, 20);
  std::vector<float> d_weights(38);
  product.input_grad(down, {}, d_rows, rows, d_activated);
  kernels.swiglu.backward({}, z, saved.weights, d_activated, {z, d_weights, activated});
  product.weight_grad(d_rows, activated, rows, d_down, Write::kReplace);
  product.input_grad(gate_up, {}, z, rows, dx);
  product.weight_grad(z, saved.rows.view(), rows, d_gate_up, Write::kReplace);
  EXPECT_EQ(floats_of(workspace.output), floats_of(dx));
  EXPECT_EQ(workspace.d_weights, d_weights);
  EXPECT_EQ(floats_of(shard.d_down), floats_of(d_down));
  EXPECT_EQ(floats_of(shard.d_gate_up), floats_of(d_gate_up));
}

struct PassResult {
  std::vector<float> output, d_output, d_weights, d_gate_up, d_down, d_gate_up_bias, d_down_bias;
  bool operator==(const PassResult&) const = default;
};

/// Forward and backward, the chunks beginning at `first_experts`; gradients replace what was there.
PassResult run_in_chunks(const KernelTable& kernels, Ways ways, const std::vector<Index>& first_experts,
                         std::vector<Span>& spans) {
  const std::vector<Index> counts = {5, 0, 33, 300, 0, 17};
  const std::vector<Index> first_rows = {0, 5, 5, 38, 338, 338, 355};
  Shard shard(6, 20, 13, ways);
  for (Matrix* gradient : shard.gradients()) fill(*gradient, 5);
  PackedExperts packed;
  packed.refresh(kernels.grouped_matmul, shard.view, 1);
  ExpertActivations saved{.rows = random_matrix(355, 20, 3), .gate_up = {}, .weights = {}};
  saved.weights.assign(355, 0.5f);
  ExpertWorkspace workspace;
  workspace.output.reshape_uninitialised(355, 20);
  PhaseClock clock;
  clock.record_into(&spans);
  const ExpertPass pass{kernels, shard.view, packed, {counts, 1}, saved, workspace, clock};
  const auto chunk_at = [&](std::size_t i) {
    const Stretch experts{first_experts[i], first_experts[i + 1]};
    return ExpertChunk{experts, {first_rows[at(experts.begin)], first_rows[at(experts.end)]}};
  };
  prepare_forward(pass);
  for (std::size_t i = 0; i + 1 < first_experts.size(); ++i) forward_chunk(pass, chunk_at(i));
  PassResult result;
  result.output = floats_of(workspace.output);
  const Matrix d_rows = random_matrix(355, 20, 4);
  prepare_backward(pass);
  for (std::size_t i = 0; i + 1 < first_experts.size(); ++i) {
    backward_chunk(pass, chunk_at(i), d_rows);
    weight_gradients(pass, chunk_at(i), d_rows, Write::kReplace);
  }
  result.d_output = floats_of(workspace.output);
  result.d_weights = workspace.d_weights;
  result.d_gate_up = floats_of(shard.d_gate_up);
  result.d_down = floats_of(shard.d_down);
  result.d_gate_up_bias = floats_of(shard.d_gate_up_bias);
  result.d_down_bias = floats_of(shard.d_down_bias);
  return result;
}

TEST(Experts, InChunksHaveTheBitsOfTheWholeAndEachProductIsTimedAndInterrupted) {
  KernelTable loop, masters, faces, bf16;
  masters.grouped_matmul = faces.grouped_matmul = packed_grouped_matmul();
  masters.grouped_matmul.uses_packed = false;
  bf16.grouped_matmul = packed_bf16_grouped_matmul();
  for (const KernelTable& kernels : {loop, masters, faces, bf16}) {
    std::vector<Span> spans;
    int interludes = 0;
    auto count = [&] { ++interludes; };
    for (const Ways ways : {Ways::kBiased, Ways::kBiasedWithWeightOnInput})
      EXPECT_EQ(run_in_chunks(kernels, ways, {0, 1, 3, 3, 6}, spans),
                run_in_chunks(kernels, ways, {0, 6}, spans));
    spans.clear();
    const PassResult whole = run_in_chunks(kernels, Ways::kPlain, {0, 6}, spans);
    EXPECT_EQ(spans.size(), 6u);
    spans.clear();
    const Meanwhile counting{Interlude(count)};
    EXPECT_EQ(run_in_chunks(kernels, Ways::kPlain, {0, 1, 3, 3, 6}, spans), whole);
    // Three chunks of six products; the one without an expert has no gradients to write.
    EXPECT_EQ(spans.size(), 3u * 6 + 4);
    // Six products, four experts with rows; of several threads the calling one takes some.
    EXPECT_GE(interludes, threads() == 1 ? 6 * 4 : 1);
    const auto rows_of = [&](std::string_view name) {
      Index rows = 0;
      for (const Span& span : spans) rows += span.name == name ? span.number : 0;
      return rows;
    };
    EXPECT_EQ(rows_of("gate_up"), 355);
    EXPECT_EQ(rows_of("down weight_grad"), 355);
  }
}

/// The loss <upstream, Y> of biased experts in double, written from the formulas.
struct BiasedLoss {
  Index hidden, inter;
  bool on_input;
  std::vector<Index> expert_of_row;
  std::vector<double> upstream;  // [R, D]

  double operator()(const std::vector<double>& x, const std::vector<double>& weights,
                    const std::vector<double>& gate_up, const std::vector<double>& down,
                    const std::vector<double>& gate_up_bias, const std::vector<double>& down_bias) const {
    double loss = 0;
    for (std::size_t r = 0; r < expert_of_row.size(); ++r) {
      const Index e = expert_of_row[r];
      const double on_x = on_input ? weights[r] : 1, on_y = on_input ? 1 : weights[r];
      std::vector<double> z(at(2 * inter));
      for (Index i = 0; i < 2 * inter; ++i) {
        z[at(i)] = gate_up_bias[at(e * 2 * inter + i)];
        for (Index j = 0; j < hidden; ++j)
          z[at(i)] += on_x * x[r * at(hidden) + at(j)] * gate_up[at((e * 2 * inter + i) * hidden + j)];
      }
      for (Index d = 0; d < hidden; ++d) {
        double y = down_bias[at(e * hidden + d)];
        for (Index f = 0; f < inter; ++f)
          y += z[at(f)] / (1 + std::exp(-z[at(f)])) * z[at(inter + f)] *
               down[at((e * hidden + d) * inter + f)];
        loss += upstream[r * at(hidden) + at(d)] * on_y * y;
      }
    }
    return loss;
  }
};

std::vector<double> doubles_of(ConstMatrixView m) {
  const auto flat = m.flat();
  return {flat.begin(), flat.end()};
}

void expect_slopes(ConstMatrixView got, std::vector<double>& values, const std::function<double()>& loss,
                   const char* what) {
  ASSERT_EQ(got.size(), std::ssize(values)) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double kept = values[i], step = 1e-5;
    values[i] = kept + step;
    const double above = loss();
    values[i] = kept - step;
    const double below = loss();
    values[i] = kept;
    // fp32 sums of a few dozen products of order 1 against a double difference.
    EXPECT_NEAR(got.data[i], (above - below) / (2 * step), 5e-6) << what << ' ' << i;
  }
}

TEST(Experts, HaveTheGradientsOfBiasesAndOfWeightsOnOutputAndOnInput) {
  const std::vector<Index> counts = {2, 0, 3};
  const Index hidden = 5, inter = 4;
  KernelTable loop, grouped;
  grouped.grouped_matmul = packed_grouped_matmul();
  grouped.grouped_matmul.uses_packed = false;
  grouped.swiglu = fused_swiglu();
  for (const KernelTable& kernels : {loop, grouped})
    for (const Ways ways : {Ways::kBiased, Ways::kBiasedWithWeightOnInput}) {
      Shard shard(3, hidden, inter, ways);
      ExpertActivations saved{.rows = random_matrix(5, hidden, 3), .gate_up = {}, .weights = {}};
      saved.weights = {0.5f, -1.25f, 0, 2, 0.75f};
      auto x = doubles_of(saved.rows.view());
      std::vector<double> weights(saved.weights.begin(), saved.weights.end());
      auto gate_up = doubles_of(shard.gate_up), down = doubles_of(shard.down);
      auto gate_up_bias = doubles_of(shard.gate_up_bias), down_bias = doubles_of(shard.down_bias);
      const Matrix upstream = random_matrix(5, hidden, 4);
      const BiasedLoss formula{
          hidden, inter, ways == Ways::kBiasedWithWeightOnInput, {0, 0, 2, 2, 2}, doubles_of(upstream)};
      const auto loss = [&] { return formula(x, weights, gate_up, down, gate_up_bias, down_bias); };

      ExpertWorkspace workspace;
      PhaseClock clock;
      const ExpertPass pass{kernels, shard.view, {}, {counts, 1}, saved, workspace, clock};
      experts_forward(pass);
      double got = 0;
      for (Index i = 0; i < upstream.view().size(); ++i)
        got += static_cast<double>(upstream.view().data[i]) * workspace.output.view().data[i];
      EXPECT_NEAR(got, loss(), 1e-5);
      experts_backward(pass, upstream, Write::kReplace);
      expect_slopes(workspace.output.view(), x, loss, "rows");
      expect_slopes({workspace.d_weights.data(), 5, 1}, weights, loss, "weights");
      expect_slopes(shard.d_gate_up, gate_up, loss, "gate_up");
      expect_slopes(shard.d_down, down, loss, "down");
      expect_slopes(shard.d_gate_up_bias, gate_up_bias, loss, "gate_up_bias");
      expect_slopes(shard.d_down_bias, down_bias, loss, "down_bias");
    }
}

TEST(Experts, LeaveOutTheGradientOfAFrozenBiasAndChangeNoOther) {
  const std::vector<Index> counts = {5, 0, 33};
  const auto run_with = [&](bool gate_up_frozen, bool down_frozen) {
    Shard shard(3, 20, 12, Ways::kBiased);
    if (gate_up_frozen) shard.view.biases.d_gate_up = {};
    if (down_frozen) shard.view.biases.d_down = {};
    ExpertActivations saved;
    ExpertWorkspace workspace;
    run({}, shard, {}, counts, saved, workspace);
    PhaseClock clock;
    experts_backward({{}, shard.view, {}, {counts, 1}, saved, workspace, clock}, random_matrix(38, 20, 4),
                     Write::kAdd);
    return PassResult{floats_of(workspace.output), {},
                      workspace.d_weights,         floats_of(shard.d_gate_up),
                      floats_of(shard.d_down),     floats_of(shard.d_gate_up_bias),
                      floats_of(shard.d_down_bias)};
  };
  const PassResult trained = run_with(false, false);
  PassResult expected = trained;
  std::ranges::fill(expected.d_gate_up_bias, 0.0f);
  EXPECT_EQ(run_with(true, false), expected);
  std::ranges::fill(expected.d_down_bias, 0.0f);
  EXPECT_EQ(run_with(true, true), expected);
}

/// Leaves are sources: what they add up to does not depend on how they are dealt.
TEST(Experts, AddUpBiasesAsExactSumsOfSources) {
  KernelTable kernels;
  kernels.grouped_matmul = packed_grouped_matmul();
  kernels.grouped_matmul.uses_packed = false;
  const Index hidden = 20, inter = 12;
  const auto run_sources = [&](const std::vector<std::vector<Index>>& passes) {
    Shard shard(1, hidden, inter, Ways::kBiased);
    std::vector<float> arena(at(2 * inter * hidden + hidden * inter + 2 * inter + hidden));
    float* next = arena.data();
    const auto place = [&](Index rows, Index cols) {
      const MatrixView view(next, rows, cols);
      next += view.size();
      return view;
    };
    ExactSums sums(arena, 8);
    shard.view.d_gate_up = place(2 * inter, hidden);
    shard.view.d_down = place(hidden, inter);
    shard.view.biases.d_gate_up = place(1, 2 * inter);
    shard.view.biases.d_down = place(1, hidden);
    shard.view.sums = &sums;
    const Matrix all = random_matrix(40, hidden, 3), upstream = random_matrix(40, hidden, 4);
    Index first = 0;
    for (const std::vector<Index>& sources : passes) {
      const Index rows = std::accumulate(sources.begin(), sources.end(), Index{0});
      ExpertActivations saved;
      saved.rows = Matrix::copy_of(all.view().rows_from(first, rows));
      saved.weights.assign(at(rows), 0.5f);
      ExpertWorkspace workspace;
      PhaseClock clock;
      const ExpertPass pass{kernels, shard.view, {}, {sources, std::ssize(sources)}, saved, workspace, clock};
      experts_forward(pass);
      experts_backward(pass, upstream.view().rows_from(first, rows), Write::kAdd);
      first += rows;
    }
    EXPECT_FALSE(sums.broken());
    return std::vector<std::int64_t>(sums.sums().begin(), sums.sums().end());
  };
  const auto whole = run_sources({{10, 10, 10, 10}});
  EXPECT_EQ(run_sources({{10, 10}, {0, 10, 0, 10}}), whole);
  EXPECT_EQ(std::ranges::count(std::span(whole).last(2 * inter + hidden), 0), 0);
}

TEST(Experts, RefuseBiasesThatDoNotFit) {
  for (const int wrong : {0, 1, 2}) {
    Shard shard(3, 20, 12, Ways::kBiased);
    if (wrong == 0) shard.view.biases.down = {};
    if (wrong == 1) shard.view.biases.gate_up = shard.down_bias;
    if (wrong == 2) shard.view.biases.d_gate_up = shard.d_down_bias;
    ExpertActivations saved;
    ExpertWorkspace workspace;
    EXPECT_THROW(run({}, shard, {}, {1, 2, 3}, saved, workspace), ShapeError) << wrong;
  }
}

TEST(Experts, PackAgainOnlyWhenTheWeightsHaveChanged) {
  Shard shard(2, 8, 4);
  PackedExperts packed;
  const GroupedMatmulKernel grouped = packed_grouped_matmul();
  packed.refresh(grouped, shard.view, 7);
  packed.refresh(grouped, shard.view, 7);
  EXPECT_EQ(packed.gate_up().packings(), 1);
  packed.refresh(grouped, shard.view, 8);
  EXPECT_EQ(packed.gate_up().packings(), 2);
  EXPECT_EQ(packed.down().packings(), 2);
  packed.refresh(packed_bf16_grouped_matmul(), shard.view, 8);
  EXPECT_EQ(packed.gate_up().element(), DType::kBF16) << "another element is another packing";
  packed.refresh(packed_bf16_grouped_matmul(), shard.view, 8);
  EXPECT_EQ(packed.down().packings(), 3);
}

TEST(Experts, TheLoopNeverPacks) {
  Shard shard(2, 8, 4);
  PackedExperts packed;
  packed.refresh(native_grouped_matmul(), shard.view, 1);
  EXPECT_TRUE(packed.gate_up().empty());
}

TEST(Experts, TheLoopGivesPackedMemoryBackAndGmmPacksAgainAfterIt) {
  Shard shard(2, 8, 4);
  PackedExperts packed;
  packed.refresh(packed_grouped_matmul(), shard.view, 7);
  EXPECT_GT(packed.gate_up().bytes(), 0);
  packed.refresh(native_grouped_matmul(), shard.view, 7);
  EXPECT_EQ(packed.gate_up().bytes() + packed.down().bytes(), 0);
  packed.refresh(packed_grouped_matmul(), shard.view, 7);
  EXPECT_EQ(packed.gate_up().packings(), 1) << "of the same weights: the faces are gone";
}

}  // namespace
}  // namespace moeloom
