// The bits of every kernel on numbers that are the same everywhere, beside checksums that are written here:
// so that no compiler, no -O and no width of vectors decides them. One list for processors that multiply and
// add in one rounding, one for the others. What asks the system's mathematical library is left out.
#include "base/checksum.hpp"
#include "kernels/causal_conv.hpp"
#include "kernels/delta_rule.hpp"
#include "kernels/elementwise/layernorm.hpp"
#include "kernels/elementwise/output_gate.hpp"
#include "kernels/elementwise/score_rows.hpp"
#include "moeloom/kernels/dense.hpp"
#include "moeloom/kernels/elementwise/rmsnorm.hpp"
#include "moeloom/kernels/elementwise/rope.hpp"
#include "moeloom/kernels/elementwise/swiglu.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"
#include "tensor/lanes.hpp"

#include <cmath>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

#if defined(__FMA__) || defined(__aarch64__)
constexpr bool kRoundsOnce = true;
#else
constexpr bool kRoundsOnce = false;
#endif

/// Uniform in [-1, 1): without the logarithms and cosines of normal numbers.
Matrix numbers(Index rows, Index cols, std::uint64_t seed) {
  Matrix m = Matrix::uninitialised(rows, cols);
  const CounterRandom random(seed, stream_of("bits"));
  for (Index i = 0; i < rows * cols; ++i)
    m.view().data[i] = static_cast<float>(2 * random.uniform(static_cast<std::uint64_t>(i)) - 1);
  return m;
}
std::vector<float> row_of_numbers(Index count, std::uint64_t seed) {
  const Matrix m = numbers(1, count, seed);
  return {m.row(0), m.row(0) + count};
}

class Bits {
 public:
  void add(const Matrix& m) { add(std::span<const float>(m.view().data, at(m.rows() * m.cols()))); }
  void add(std::span<const float> floats) { sum_.add(std::as_bytes(floats)); }
  std::string text() const { return hex_text(sum_.value()); }

 private:
  StreamedChecksum sum_;
};

/// Widths with a rest behind vectors, behind 32 partial sums and behind a piece of 256 terms.
constexpr Index kWidths[] = {1, 7, 33, 64, 301};

void norms(Bits& bits) {
  for (const Index width : kWidths) {
    const Matrix x = numbers(5, width, 1), dy = numbers(5, width, 2), gate = numbers(5, width, 3);
    const std::vector<float> weight = row_of_numbers(width, 4), bias = row_of_numbers(width, 5);
    std::vector<float> scales(5), d_weight(at(width)), d_bias(at(width));
    Matrix y(5, width), dx(5, width), d_gate(5, width);
    const RmsNormKernel norm = fused_rmsnorm();
    norm.gated_forward(x, gate, weight, {}, y, scales);
    bits.add(y);
    norm.forward(x, weight, {}, y.view(), scales);
    norm.backward({x, weight, {}, scales}, dy, dx, d_weight);
    bits.add(y), bits.add(dx), bits.add(d_weight);
    norm.gated_backward({x, weight, {}, scales}, gate, dy, dx, d_gate, d_weight);
    bits.add(dx), bits.add(d_gate), bits.add(d_weight);
    layernorm_forward(x, {weight, bias}, y.view(), scales);
    layernorm_backward(x, {weight, bias}, scales, dy, dx, {d_weight, d_bias});
    bits.add(y), bits.add(dx), bits.add(d_weight), bits.add(d_bias);
  }
}

void activations(Bits& bits) {
  const GatedActivation kinds[] = {{},
                                   {.act = Activation::kGeluTanh},
                                   {.act = Activation::kGelu, .sparsity = 0.5},
                                   {.alpha = 1.7f, .limit = 0.7f, .up_offset = 1}};
  for (const GatedActivation& kind : kinds)
    for (const Index width : kWidths) {
      const Matrix gate_up = numbers(4, 2 * width, 1), grad = numbers(4, width, 2);
      const std::vector<float> scale = row_of_numbers(4, 3);
      Matrix y(4, width), d_gate_up(4, 2 * width);
      std::vector<float> d_scale(4);
      fused_swiglu().forward(kind, gate_up, scale, y.view());
      bits.add(y);
      fused_swiglu().backward(kind, gate_up, scale, grad, {d_gate_up.view(), d_scale, y.view()});
      bits.add(d_gate_up), bits.add(d_scale), bits.add(y);
    }
}

void gates_and_scores(Bits& bits) {
  for (const Index width : kWidths) {
    const Matrix x = numbers(3, width, 1), gate = numbers(3, width, 2), dy = numbers(3, width, 3);
    Matrix y(3, width), dx(3, width), d_gate(3, width);
    output_gate_forward(GateFunction::kSigmoid, x, gate, y.view());
    output_gate_backward(GateFunction::kSigmoid, dy, x, gate, dx, d_gate);
    bits.add(y), bits.add(dx), bits.add(d_gate);
    std::vector<float> scores(at(width)), d = row_of_numbers(width, 4);
    softmax_scores(x.row(0), width, scores.data());
    softmax_scores_backward(scores.data(), width, 0.5f, d.data());
    probability_backward(scores.data(), dy.row(1), width, d.data());
    const auto sum = static_cast<float>(sum_of_scores(scores.data(), width));
    bits.add(scores), bits.add(d), bits.add({&sum, 1});
    sigmoid_scores(x.row(2), width, scores.data());
    sigmoid_scores_backward(scores.data(), width, d.data());
    bits.add(scores), bits.add(d);
  }
}

void rotations(Bits& bits) {
  const std::vector<std::int32_t> positions = {0, 3, 7};
  for (const RopePairs pairs :
       {RopePairs::kHalfSplit, RopePairs::kInterleaved, RopePairs::kInterleavedToHalves}) {
    const RopeTable table{.cosine = numbers(8, 6, 1), .sine = numbers(8, 6, 2), .pairs = pairs};
    Matrix x = numbers(3, 32, 3);
    fused_rope().forward(x, 16, positions, table);
    bits.add(x);
    fused_rope().backward(x, 16, positions, table);
    bits.add(x);
  }
}

/// tiled: the same for any width of vectors.
void products(Bits& bits) {
  const std::vector<Index> counts = {3, 0, 29, 1};
  const GroupedRows rows{counts};
  for (const auto& [out, in] : {std::pair<Index, Index>{37, 41}, {64, 530}}) {
    const Matrix w = numbers(4 * out, in, 1), x = numbers(rows.total(), in, 2);
    const Matrix dy = numbers(rows.total(), out, 3);
    for (const GroupedMatmulKernel& kernel :
         {packed_grouped_matmul(), packed_bf16_grouped_matmul(Bf16Unit::kTiles)}) {
      PackedWeights packed;
      packed.pack({w, 4}, kernel.element);
      Matrix y(rows.total(), out), dx(rows.total(), in), dw = numbers(4 * out, in, 4);
      kernel.forward({w, 4}, packed, x, rows, y);
      kernel.input_grad({w, 4}, packed, dy, rows, dx);
      kernel.weight_grad(dy, x, rows, dw.view(), Write::kAdd);
      bits.add(y), bits.add(dx), bits.add(dw);
    }
  }
}

void streamed(Bits& bits) {
  const Matrix x = numbers(4, 533, 1), w = numbers(201, 533, 2);
  for (const Index rows : {1, 4}) {
    Matrix y(rows, 201);
    streamed_dense().forward(x.view().rows_from(0, rows), w, y, Write::kReplace);
    bits.add(y);
  }
}

void recurrences(Bits& bits) {
  const std::vector<Index> offsets = {0, 70, 75};
  const DeltaRuleShape shape{1, 2, 20, 24, offsets};
  const Matrix q = numbers(75, 20, 1), k = numbers(75, 20, 2), v = numbers(75, 48, 3);
  Matrix decay = numbers(75, 2, 4), beta = numbers(75, 2, 5);
  for (Index i = 0; i < 150; ++i) decay.view().data[i] = -std::fabs(decay.view().data[i]);
  const Matrix initial = numbers(4, 480, 6), d_output = numbers(75, 48, 7), d_final = numbers(4, 480, 8);
  Matrix output(75, 48), delta(75, 48), state(4, 480);
  delta_rule_forward(shape, {q, k, v, decay, beta}, initial, output, delta, state);
  bits.add(output), bits.add(delta), bits.add(state);
  Matrix dq(75, 20), dk(75, 20), dv(75, 48), d_decay(75, 2), d_beta(75, 2), d_initial(4, 480);
  delta_rule_backward(shape, {{q, k, v, decay, beta}, delta, initial}, d_output, d_final,
                      {dq, dk, dv, d_decay, d_beta, d_initial});
  for (const Matrix* m : {&dq, &dk, &dv, &d_decay, &d_beta, &d_initial}) bits.add(*m);
  const auto first = [](const Matrix& m) { return m.view().rows_from(0, 2); };
  Matrix next(2, 48);
  delta_rule_step(shape, {first(q), first(k), first(v), first(decay), first(beta)}, state, next);
  bits.add(next), bits.add(state);

  const Matrix weight = numbers(20, 4, 9), dy = numbers(75, 20, 10);
  const std::vector<float> bias = row_of_numbers(20, 11);
  const CausalConv conv{weight, bias, ConvActivation::kSilu, offsets};
  Matrix y(75, 20), dx(75, 20), d_weight(20, 4);
  std::vector<float> d_bias(20);
  causal_conv_forward(conv, q, {}, y, {});
  causal_conv_backward(conv, q, dy, dx, {d_weight, d_bias});
  bits.add(y), bits.add(dx), bits.add(d_weight), bits.add(d_bias);
}

struct Kernels {
  const char* name;
  void (*run)(Bits& bits);
  const char *rounded_once, *rounded_twice;
};

TEST(WrittenBits, AreThoseOfEveryCompiler) {
  const Kernels all[] = {{"norms", norms, "426a15d5c904f2fc", "561102eed19f9a9d"},
                         {"activations", activations, "ad30a5ac219a5d1e", "b93f68a45c1e55b1"},
                         {"gates and scores", gates_and_scores, "914c7a640e19f482", "58d2902a872bebc3"},
                         {"rotations", rotations, "1edbfe6a88c95946", "1edbfe6a88c95946"},
                         {"products", products, "3a695623a22b1586", "c3e1134c3949a865"},
                         {"recurrences", recurrences, "06a363af0ade9013", "93305d149bb3f597"}};
  for (const Kernels& kernels : all) {
    Bits bits;
    kernels.run(bits);
    EXPECT_EQ(bits.text(), kRoundsOnce ? kernels.rounded_once : kernels.rounded_twice) << kernels.name;
  }
}

/// Whose sums have a part for each lane.
TEST(WrittenBits, OfFewRowsAreThoseOfEveryCompilerForAWidthOfVectors) {
  const std::string expected = kRoundsOnce && kLanes == 16   ? "d4e7e08e2123134f"
                               : kRoundsOnce && kLanes == 8  ? "dabc6a54ad383061"
                               : !kRoundsOnce && kLanes == 4 ? "2d67cc6b4b737e4e"
                                                             : "";
  if (expected.empty()) GTEST_SKIP() << "no checksum was written for vectors of " << kLanes << " numbers";
  Bits bits;
  streamed(bits);
  EXPECT_EQ(bits.text(), expected);
}

}  // namespace
}  // namespace moeloom
