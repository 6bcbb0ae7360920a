// Gated activations, norms and rotary embeddings of arrays: against the rooms' kernels on the same numbers,
// and rotary embeddings against their formula.
#include "moeloom/kernels/elementwise/rmsnorm.hpp"
#include "moeloom/kernels/elementwise/swiglu.hpp"

#include <sstream>

#include "c_arrays.hpp"

namespace moeloom {
namespace {

using namespace testing;

template <typename Use>
void for_each_lie(Use use) {
  for (const Lie& lie : kLies) {
    std::ostringstream where;
    where << lie;
    SCOPED_TRACE(where.str());
    use(lie);
  }
}

struct Glu {
  ml_glu_settings settings;
  GatedActivation activation;
};
std::vector<Glu> all_glus() {
  constexpr std::int64_t kSize = sizeof(ml_glu_settings);
  return {{{kSize, "silu", 0, 0}, {}},
          {{kSize, nullptr, 0, 1}, {.scale_on = RowScaleOn::kInputs}},
          {{kSize, "swish", 0, 0}, {}},
          {{kSize, "gelu", 0, 0}, {.act = Activation::kGelu}},
          {{kSize, "gelu_new", 0, 0}, {.act = Activation::kGeluTanh}},
          {{kSize, "gelu_pytorch_tanh", 0.5f, 0}, {.act = Activation::kGeluTanh, .sparsity = 0.5f}},
          {{kSize, "gpt_oss", 0, 0}, {.alpha = 1.702f, .limit = 7, .up_offset = 1}}};
}

TEST(CGlu, HasTheNumbersOfTheKernel) {
  constexpr Index kRows = 5, kInter = 19;
  for (const Glu& glu : all_glus())
    for_each_lie([&](const Lie& lie) {
      SCOPED_TRACE(glu.settings.kind == nullptr ? "NULL" : glu.settings.kind);
      const Array gate_up(random_matrix(kRows, 2 * kInter, 1, 3), lie),
          d_out(random_matrix(kRows, kInter, 2), lie);
      const Array scale(random_matrix(1, kRows, 3), {kRows}, lie), out({kRows, kInter}, lie);
      const Array d_gate_up({kRows, 2 * kInter}, lie), d_scale({kRows}, lie);
      const Matrix inputs = gate_up.numbers(), scales = scale.numbers(), above = d_out.numbers();
      Matrix y(kRows, kInter), dz(kRows, 2 * kInter), again(kRows, kInter), ds(1, kRows);
      fused_swiglu().forward(glu.activation, inputs, scales.view().flat(), y.view());
      fused_swiglu().backward(glu.activation, inputs, scales.view().flat(), above,
                              {dz.view(), ds.view().flat(), again.view()});
      EXPECT_OK(ml_glu(&glu.settings, gate_up, scale, out));
      expect_near(out.numbers(), y, rounding_of(lie.dtype), "out");
      EXPECT_OK(ml_glu_grad(&glu.settings, gate_up, scale, d_out, d_gate_up, d_scale));
      expect_near(d_gate_up.numbers(), dz, rounding_of(lie.dtype), "d_gate_up");
      expect_near(d_scale.numbers(), ds, rounding_of(lie.dtype), "d_row_scale");
      fused_swiglu().forward(glu.activation, inputs, {}, y.view());
      EXPECT_OK(ml_glu(&glu.settings, gate_up, nullptr, out));
      expect_near(out.numbers(), y, rounding_of(lie.dtype), "out without a scale");
    });
}

TEST(CGlu, KnowsItsWords) {
  const Array gate_up({2, 6}), out({2, 3}), odd({2, 5});
  const ml_glu_settings relu{sizeof(ml_glu_settings), "relu", 0, 0}, none{};
  EXPECT_STATUS(ml_glu(&relu, gate_up, nullptr, out), ML_CONFIG, "unknown activation \"relu\"; known: silu");
  EXPECT_STATUS(ml_glu(&none, gate_up, nullptr, out), ML_SHAPE, "sizeof");
  EXPECT_STATUS(ml_glu(nullptr, odd, nullptr, out), ML_SHAPE, "odd number of columns");
  EXPECT_STATUS(ml_glu(nullptr, gate_up, nullptr, odd), ML_SHAPE, "out is [2, 5] and must be [2, 3]");
  EXPECT_STATUS(ml_glu_grad(nullptr, gate_up, nullptr, out, gate_up, out), ML_SHAPE, "both NULL");
}

TEST(CRmsNorm, HasTheNumbersOfTheKernel) {
  constexpr Index kRows = 6, kCols = 21;
  const RmsNormKernel kernel = fused_rmsnorm();
  for (const bool gated : {false, true})
    for_each_lie([&](const Lie& lie) {
      const RmsNormSettings settings{1e-5f, gated ? 0.0f : 1.0f};
      const Array x(random_matrix(kRows, kCols, 1), {2, 3, kCols}, lie),
          gate(random_matrix(kRows, kCols, 2), {2, 3, kCols}, lie);
      const Array w(random_matrix(1, kCols, 3), {kCols}, lie),
          dy(random_matrix(kRows, kCols, 4), {2, 3, kCols}, lie);
      const Array y({2, 3, kCols}, lie), inverse({kRows}), dx({2, 3, kCols}, lie), d_gate({2, 3, kCols}, lie);
      const Array dw(random_matrix(1, kCols, 5), {kCols}, lie);
      const Matrix rows = x.numbers(), gates = gate.numbers(), factors = w.numbers(), above = dy.numbers();
      Matrix expected(kRows, kCols), dx_expected(kRows, kCols), dg_expected(kRows, kCols),
          dw_expected = dw.numbers();
      std::vector<float> inv_rms(kRows);
      const NormedRows normed{rows, factors.view().flat(), settings, inv_rms};
      if (gated) {
        kernel.gated_forward(rows, gates, factors.view().flat(), settings, expected, inv_rms);
        kernel.gated_backward(normed, gates, above, dx_expected, dg_expected, dw_expected.view().flat());
      } else {
        kernel.forward(rows, factors.view().flat(), settings, expected.view(), inv_rms);
        kernel.backward(normed, above, dx_expected, dw_expected.view().flat());
      }
      const ml_array* const with = gated ? static_cast<const ml_array*>(gate) : nullptr;
      const ml_array* const d_with = gated ? static_cast<const ml_array*>(d_gate) : nullptr;
      EXPECT_OK(ml_rmsnorm(x, with, w, settings.eps, settings.weight_offset, y, inverse));
      expect_near(y.numbers(), expected, rounding_of(lie.dtype), "y");
      EXPECT_OK(ml_rmsnorm_grad(dy, x, with, w, settings.eps, settings.weight_offset, inverse, dx, d_with, dw,
                                ML_ADD));
      expect_near(dx.numbers(), dx_expected, rounding_of(lie.dtype), "dx");
      expect_near(dw.numbers(), dw_expected, 2 * rounding_of(lie.dtype), "dw");
      if (gated) expect_near(d_gate.numbers(), dg_expected, rounding_of(lie.dtype), "d_gate");
      const Matrix before = dx.numbers();
      EXPECT_OK(ml_rmsnorm_grad(dy, x, with, w, settings.eps, settings.weight_offset, nullptr, dx, d_with,
                                nullptr, ML_REPLACE));
      expect_near(dx.numbers(), before, 0, "dx without inv_rms");
    });
}

TEST(CRmsNorm, SaysWhatDoesNotFit) {
  const Array x({2, 3, 8}), flat({6, 8}), w({8}), wide({9}), no_columns({2, 0}), none({0});
  EXPECT_STATUS(ml_rmsnorm(x, nullptr, wide, 1e-6f, 0, x, nullptr), ML_SHAPE,
                "weight is [9] and must be [8]");
  EXPECT_STATUS(ml_rmsnorm(x, nullptr, w, 1e-6f, 0, flat, nullptr), ML_SHAPE,
                "y is [6, 8] and must be [2, 3, 8]");
  EXPECT_STATUS(ml_rmsnorm(no_columns, nullptr, none, 1e-6f, 0, no_columns, nullptr), ML_SHAPE,
                "x has rows of no element, which have no mean");
  EXPECT_STATUS(ml_rmsnorm(x, flat, w, 1e-6f, 0, x, nullptr), ML_SHAPE, "gate is [6, 8]");
  EXPECT_STATUS(
      ml_rmsnorm_grad(flat, flat, nullptr, w, 1e-6f, 0, nullptr, nullptr, flat, nullptr, ML_REPLACE),
      ML_SHAPE, "there is a d_gate, and no gate");
}

/// cos and sin of T positions, each angle twice.
Matrix angles(Index tokens, Index turned, bool beside, double (*of)(double)) {
  Matrix twice(tokens, turned);
  for (Index t = 0; t < tokens; ++t)
    for (Index i = 0; i < turned; ++i) {
      const Index pair = beside ? i / 2 : i % (turned / 2);
      twice.row(t)[i] = static_cast<float>(of(static_cast<double>(t) / (1.0 + static_cast<double>(pair))));
    }
  return twice;
}

/// The formula on one head.
void turn(const float* x, Index width, Index turned, std::int32_t pairs, const float* cos, const float* sin,
          bool beside, float* y) {
  std::copy_n(x, width, y);
  for (Index i = 0; i < turned / 2; ++i) {
    const Index a = pairs == ML_HALVES ? i : 2 * i, b = pairs == ML_HALVES ? i + turned / 2 : 2 * i + 1;
    const Index to_a = pairs == ML_INTERLEAVED ? 2 * i : i,
                to_b = pairs == ML_INTERLEAVED ? 2 * i + 1 : i + turned / 2;
    const Index place = beside ? 2 * i : i;
    y[to_a] = x[a] * cos[place] - x[b] * sin[place];
    y[to_b] = x[b] * cos[place] + x[a] * sin[place];
  }
}

TEST(CRope, TurnsPairsOfEveryKindAtEitherPlaceOfTheAngles) {
  constexpr Index kTokens = 5, kHeads = 3, kWidth = 16;
  for (const std::int32_t pairs : {ML_HALVES, ML_INTERLEAVED, ML_INTERLEAVED_TO_HALVES})
    for (const Index turned : {Index{8}, kWidth})
      for (const bool beside : {false, true})
        for_each_lie([&](const Lie& lie) {
          const Array x(random_matrix(kTokens * kHeads, kWidth, 1), {kTokens, kHeads, kWidth}, lie),
              y({kTokens, kHeads, kWidth}, lie);
          const Array cos(angles(kTokens, turned, beside, std::cos)),
              sin(angles(kTokens, turned, beside, std::sin));
          const Matrix rows = x.numbers(), c = cos.numbers(), s = sin.numbers();
          Matrix expected(kTokens * kHeads, kWidth);
          for (Index row = 0; row < kTokens * kHeads; ++row)
            turn(rows.row(row), kWidth, turned, pairs, c.row(row / kHeads), s.row(row / kHeads), beside,
                 expected.row(row));
          EXPECT_OK(ml_rope(x, cos, sin, pairs, y));
          expect_near(y.numbers(), expected, 2 * rounding_of(lie.dtype), "y");
          EXPECT_OK(ml_rope_grad(y, cos, sin, pairs, y));  // a turn and its transpose, in place
          expect_near(y.numbers(), rows, 8 * rounding_of(lie.dtype), "back");
        });
}

TEST(CRope, TakesSequencesAndHeadsInAnyOrder) {
  constexpr Index kBatch = 2, kTokens = 4, kHeads = 3, kWidth = 8;
  const Matrix numbers = random_matrix(kBatch * kHeads * kTokens, kWidth, 1);
  Array heads_first(numbers, {kBatch, kHeads, kTokens, kWidth});  // as [B, T, H, d] with heads outside
  std::swap(heads_first.get().shape[1], heads_first.get().shape[2]);
  std::swap(heads_first.get().stride[1], heads_first.get().stride[2]);
  const Array cos(angles(kTokens, kWidth, false, std::cos), {1, kTokens, kWidth}),
      sin(angles(kTokens, kWidth, false, std::sin), {1, kTokens, kWidth});
  EXPECT_OK(ml_rope(heads_first, cos, sin, ML_HALVES, heads_first));
  const Matrix got = heads_first.numbers(), c = cos.numbers(), s = sin.numbers();
  Matrix expected(got.rows(), kWidth);
  for (Index b = 0; b < kBatch; ++b)
    for (Index t = 0; t < kTokens; ++t)
      for (Index h = 0; h < kHeads; ++h)
        turn(numbers.row((b * kHeads + h) * kTokens + t), kWidth, kWidth, ML_HALVES, c.row(t), s.row(t),
             false, expected.row((b * kTokens + t) * kHeads + h));
  expect_near(got, expected, 2e-7, "y");
}

TEST(CRope, RefusesAnglesThatDoNotStandTwice) {
  const Array x({4, 1, 8}), y({4, 1, 8}), once(random_matrix(4, 8, 1)), odd({4, 3}), wide({4, 10});
  EXPECT_STATUS(ml_rope(x, once, once, ML_HALVES, y), ML_SHAPE, "each angle twice");
  EXPECT_STATUS(ml_rope(x, odd, odd, ML_HALVES, y), ML_SHAPE, "even");
  EXPECT_STATUS(ml_rope(x, wide, wide, ML_HALVES, y), ML_SHAPE, "at most the 8 elements");
  EXPECT_STATUS(ml_rope(x, once, once, 9, y), ML_SHAPE, "ML_HALVES");
}

}  // namespace
}  // namespace moeloom
