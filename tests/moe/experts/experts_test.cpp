#include "moeloom/moe/experts/experts.hpp"

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

struct Shard {
  Matrix gate_up, down, d_gate_up, d_down;
  ExpertShard view;
  Shard(Index experts, Index hidden, Index inter)
      : gate_up(random_matrix(experts * 2 * inter, hidden, 1, 0.3)),
        down(random_matrix(experts * hidden, inter, 2, 0.3)),
        d_gate_up(gate_up.rows(), hidden),
        d_down(down.rows(), inter),
        view{experts, gate_up, down, d_gate_up, d_down} {}
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
  std::vector<float> output, d_output, d_weights, d_gate_up, d_down;
  bool operator==(const PassResult&) const = default;
};

/// Forward and backward, the chunks beginning at `first_experts`; gradients replace what was there.
PassResult run_in_chunks(const KernelTable& kernels, const std::vector<Index>& first_experts,
                         std::vector<Span>& spans, Interlude between) {
  const std::vector<Index> counts = {5, 0, 33, 300, 0, 17};
  const std::vector<Index> first_rows = {0, 5, 5, 38, 338, 338, 355};
  Shard shard(6, 20, 13);
  fill(shard.d_gate_up, 5);
  fill(shard.d_down, 5);
  PackedExperts packed;
  packed.refresh(kernels.grouped_matmul, shard.view, 1);
  ExpertActivations saved{.rows = random_matrix(355, 20, 3), .gate_up = {}, .weights = {}};
  saved.weights.assign(355, 0.5f);
  ExpertWorkspace workspace;
  workspace.output.reshape_uninitialised(355, 20);
  PhaseClock clock;
  clock.record_into(&spans);
  const ExpertPass pass{kernels, shard.view, packed, {counts, 1, between}, saved, workspace, clock};
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
    const PassResult whole = run_in_chunks(kernels, {0, 6}, spans, {});
    EXPECT_EQ(spans.size(), 6u);
    spans.clear();
    EXPECT_EQ(run_in_chunks(kernels, {0, 1, 3, 3, 6}, spans, Interlude(count)), whole);
    // Three chunks of six products; the one without an expert has no gradients to write.
    EXPECT_EQ(spans.size(), 3u * 6 + 4);
    EXPECT_GE(interludes, 6 * 4);  // six products, four experts with rows
    const auto rows_of = [&](std::string_view name) {
      Index rows = 0;
      for (const Span& span : spans) rows += span.name == name ? span.number : 0;
      return rows;
    };
    EXPECT_EQ(rows_of("gate_up"), 355);
    EXPECT_EQ(rows_of("down weight_grad"), 355);
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
