// Segments of rows: attention of each is that of its tokens alone.
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <ctime>
#include <limits>
#include <numeric>

#include "attention/attention_layer_testing.hpp"
#include "attention/attention_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

Matrix part_of(const Matrix& m, Index begin, Index end) {
  return Matrix::copy_of(m.view().rows_from(begin, end - begin));
}

/// Lengths at both sides of a vector, a panel, a block and a task; rows with one segment and with many.
const std::vector<Index> kOffsets = {0, 1, 2, 9, 33, 57, 82, 400, 700, 1400};

std::vector<AttentionShape> shapes_of_rows() {
  const AttentionShape plain{
      .sequences = 2, .query_length = 700, .key_length = 700, .heads = 4, .kv_heads = 2, .head_dim = 20};
  static constexpr float kSinks[] = {0.5f, -3.0f, 8.0f, 1.0f};
  AttentionShape windowed = plain, narrow = plain, chunked = plain;
  windowed.window = 30;
  windowed.scale = 0.3f;
  narrow.value_dim = 12;
  narrow.kv_heads = narrow.heads = 3;
  chunked.chunk = 50;
  chunked.sinks = kSinks;
  return {plain, windowed, narrow, chunked};
}

class AttentionSegmentsOf : public ::testing::TestWithParam<AttentionShape> {};

TEST_P(AttentionSegmentsOf, HaveTheBitsOfEachAloneForAnyNumberOfThreads) {
  AttentionShape packed = GetParam();
  packed.segment_offsets = kOffsets;
  const AttentionInputs in = random_inputs(packed);
  const int before = threads();
  for (const int count : {1, 3}) {
    set_threads(count);
    const AttentionOutputs all = run_attention(packed, in);
    for (std::size_t s = 0; s + 1 < kOffsets.size(); ++s) {
      const auto mine = [&](const Matrix& m) { return part_of(m, kOffsets[s], kOffsets[s + 1]); };
      AttentionShape alone = GetParam();
      alone.sequences = 1;
      alone.query_length = alone.key_length = kOffsets[s + 1] - kOffsets[s];
      expect_same_bits(
          run_attention(alone, {mine(in.query), mine(in.key), mine(in.value), mine(in.d_context)}),
          {mine(all.context), mine(all.log_sum_exp), mine(all.d_query), mine(all.d_key), mine(all.d_value)});
    }
  }
  set_threads(before);
}

TEST_P(AttentionSegmentsOf, OfOneForEachSequenceHaveTheBitsOfNone) {
  AttentionShape packed = GetParam();
  const AttentionInputs in = random_inputs(packed);
  const AttentionOutputs without = run_attention(packed, in);
  const std::vector<Index> offsets = {0, 700, 1400};
  packed.segment_offsets = offsets;
  expect_same_bits(run_attention(packed, in), without);
}

INSTANTIATE_TEST_SUITE_P(Every, AttentionSegmentsOf, ::testing::ValuesIn(shapes_of_rows()));

TEST(AttentionSegments, CostNoMoreThanTheyAre) {
  AttentionShape shape{
      .sequences = 1, .query_length = 2048, .key_length = 2048, .heads = 4, .kv_heads = 2, .head_dim = 32};
  const AttentionInputs in = random_inputs(shape);
  // Of the processor, so that other programs on the machine do not count.
  const auto ticks = [&] {
    std::clock_t best = std::numeric_limits<std::clock_t>::max();
    for (int i = 0; i < 5; ++i) {
      const std::clock_t start = std::clock();
      run_attention(shape, in);
      best = std::min(best, std::clock() - start);
    }
    return static_cast<double>(best);
  };
  const double whole = ticks();
  shape.chunk = 128;
  EXPECT_LT(ticks(), 0.5 * whole) << "nor do chunks";
  shape.chunk = 0;
  std::vector<Index> offsets(17);
  for (std::size_t s = 0; s < offsets.size(); ++s) offsets[s] = static_cast<Index>(s) * 128;
  shape.segment_offsets = offsets;
  // A sixteenth of the scores, but for those beyond the diagonal of a block.
  EXPECT_LT(ticks(), 0.5 * whole);
}

TEST(AttentionSegments, AreRefusedUnlessTheyCoverTheQueries) {
  const AttentionShape good{
      .sequences = 2, .query_length = 4, .key_length = 4, .heads = 2, .kv_heads = 1, .head_dim = 8};
  const AttentionInputs in = random_inputs(good);
  for (const std::vector<Index>& offsets :
       std::vector<std::vector<Index>>{{0, 4}, {0, 4, 9}, {1, 4, 8}, {0, 4, 4, 8}, {0, 5, 4, 8}, {0}}) {
    AttentionShape wrong = good;
    wrong.segment_offsets = offsets;
    EXPECT_THROW(run_attention(wrong, in), ShapeError);
  }
  const std::vector<Index> right = {0, 1, 4};
  AttentionShape cached{.sequences = 1,
                        .query_length = 3,
                        .key_length = 4,
                        .heads = 2,
                        .kv_heads = 1,
                        .head_dim = 8,
                        .segment_offsets = right};
  EXPECT_THROW(run_attention(cached, random_inputs(cached)), ShapeError) << "of more keys than queries";
}

/// Segments of the layers' two sequences: 11 tokens as 3 + 1 + 7, 11 as one.
const std::vector<Index> kLayerOffsets = {0, 3, 4, 11, 22};

class AttentionLayerSegmentsOf : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionLayerSegmentsOf, HaveTheOutputsAndGradientsOfTheDefinitionOfEachAlone) {
  AttentionFixture f(GetParam());
  for (std::size_t s = 0; s + 1 < kLayerOffsets.size(); ++s)
    std::iota(f.positions.begin() + kLayerOffsets[s], f.positions.begin() + kLayerOffsets[s + 1], 0);
  MixerContext context = f.context();
  context.segment_offsets = kLayerOffsets;
  MixerLayer layer = f.layer();
  MixerWorkspace workspace;
  Matrix hidden = Matrix::copy_of(f.input);
  Matrix gradient = Matrix::copy_of(f.d_output);
  layer.forward(norm_and_rope_kernels(true), context, hidden);
  layer.backward(norm_and_rope_kernels(true), context, gradient, workspace);

  AttentionReference reference = f.reference();
  reference.segment_offsets = kLayerOffsets;
  Doubles input = doubles_of(f.input);
  const Doubles expected = reference.forward(input);
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(hidden.view().data[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << i;
  const auto objective = [&] {
    const Doubles out = reference.forward(input);
    return std::inner_product(out.begin(), out.end(), f.d_output.view().data, 0.0);
  };
  expect_differences("input", input, gradient.view().data, objective);
  for (const Parameter& p : f.store.parameters())
    expect_differences(p.spec.name, reference.values.at(p.spec.name), p.grad.data, objective);
}

INSTANTIATE_TEST_SUITE_P(Every, AttentionLayerSegmentsOf, ::testing::ValuesIn(attention_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace moeloom
