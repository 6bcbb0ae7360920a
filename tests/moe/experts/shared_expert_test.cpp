#include "moe/experts/shared_expert.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

constexpr Index kHidden = 6;
constexpr Index kWidth = 9;

struct Fixture {
  Matrix gate_up = random_matrix(2 * kWidth, kHidden, 1, 0.5);
  Matrix down = random_matrix(kHidden, kWidth, 2, 0.5);
  Matrix gate = random_matrix(1, kHidden, 3);
  Matrix d_gate_up{2 * kWidth, kHidden};
  Matrix d_down{kHidden, kWidth};
  Matrix d_gate{1, kHidden};
  Matrix gate_up_bias = random_matrix(1, 2 * kWidth, 11), down_bias = random_matrix(1, kHidden, 12);
  Matrix d_gate_up_bias{1, 2 * kWidth}, d_down_bias{1, kHidden};

  SharedExpertWeights biased(bool gated) {
    SharedExpertWeights weights = views(gated);
    weights.biases = {gate_up_bias, down_bias, d_gate_up_bias, d_down_bias};
    return weights;
  }
  SharedExpertWeights views(bool gated) {
    SharedExpertWeights weights{.gate_up = gate_up, .down = down, .d_gate_up = d_gate_up, .d_down = d_down};
    if (gated) weights.gate = gate;
    if (gated) weights.d_gate = d_gate;
    return weights;
  }
};

/// Element d of a token's output, in double.
double reference(const Fixture& f, bool gated, const float* x, Index d, bool biased = false) {
  const auto dot = [&](const float* row) {
    double sum = 0;
    for (Index j = 0; j < kHidden; ++j) sum += static_cast<double>(row[j]) * x[j];
    return sum;
  };
  const auto of_biases = [&](const Matrix& bias, Index i) { return biased ? bias.row(0)[i] : 0.0f; };
  double sum = of_biases(f.down_bias, d);
  for (Index s = 0; s < kWidth; ++s) {
    const double z = dot(f.gate_up.row(s)) + of_biases(f.gate_up_bias, s);
    const double up = dot(f.gate_up.row(kWidth + s)) + of_biases(f.gate_up_bias, kWidth + s);
    sum += z / (1 + std::exp(-z)) * up * f.down.row(d)[s];
  }
  return gated ? sum / (1 + std::exp(-dot(f.gate.row(0)))) : sum;
}

TEST(SharedExpert, AddsTheMlpOfEveryTokenUnderItsGate) {
  for (const bool gated : {false, true})
    for (const Index tokens : {0, 1, 300}) {
      Fixture f;
      SharedExpert expert(f.views(gated));
      SharedExpertWorkspace workspace;
      const Matrix x = random_matrix(tokens, kHidden, 4);
      Matrix output(tokens, kHidden);
      fill(output, 10);
      expert.forward({}, x, output, workspace);
      for (Index t = 0; t < tokens; ++t)
        for (Index d = 0; d < kHidden; ++d)  // one rounding of a number near 10, and some of a few units
          EXPECT_NEAR(output.row(t)[d], 10 + reference(f, gated, x.row(t), d), 5e-6);
    }
}

TEST(SharedExpert, AddsToGradientsAndToTheInputGradient) {
  for (const bool gated : {false, true}) {
    Fixture once, twice;
    SharedExpert a(once.views(gated)), b(twice.views(gated));
    SharedExpertWorkspace workspace;
    const Matrix x = random_matrix(20, kHidden, 5);
    const Matrix d_output = random_matrix(20, kHidden, 6);
    Matrix output(20, kHidden), d_once(20, kHidden), d_twice(20, kHidden);
    const auto run = [&](SharedExpert& expert, MatrixView d_x) {
      expert.forward({}, x, output, workspace);
      expert.backward({}, x, d_output, d_x, workspace);
    };
    run(a, d_once);
    run(b, d_twice);
    run(b, d_twice);
    const auto doubled = [](const Matrix& two, const Matrix& one) {
      for (Index i = 0; i < one.view().size(); ++i)
        EXPECT_NEAR(two.view().data[i], 2 * one.view().data[i], 1e-5);  // sums of 20 products of order 1
    };
    doubled(d_twice, d_once);
    doubled(twice.d_gate_up, once.d_gate_up);
    doubled(twice.d_down, once.d_down);
    doubled(twice.d_gate, once.d_gate);
    float largest = 0;
    for (const float g : once.d_gate.view().flat()) largest = std::max(largest, std::abs(g));
    EXPECT_EQ(largest > 0, gated);
  }
}

/// By differences of the double formula in fp32 weights: steps of 1e-2 leave 1e-4 of a cubic term.
TEST(SharedExpert, HasTheGradientsOfItsBiasesUnderItsGate) {
  for (const bool gated : {false, true}) {
    Fixture f;
    SharedExpert expert(f.biased(gated));
    SharedExpertWorkspace workspace;
    Matrix x = random_matrix(5, kHidden, 4);
    const Matrix d_output = random_matrix(5, kHidden, 6);
    Matrix output(5, kHidden), d_x(5, kHidden);
    expert.forward({}, x, output, workspace);
    expert.backward({}, x, d_output, d_x, workspace);
    const auto loss = [&] {
      double sum = 0;
      for (Index t = 0; t < 5; ++t)
        for (Index d = 0; d < kHidden; ++d)
          sum += static_cast<double>(d_output.row(t)[d]) * reference(f, gated, x.row(t), d, true);
      return sum;
    };
    for (Index t = 0; t < 5; ++t)
      for (Index d = 0; d < kHidden; ++d)
        EXPECT_NEAR(output.row(t)[d], reference(f, gated, x.row(t), d, true), 5e-6);
    const auto expect_slopes = [&](Matrix& values, const Matrix& gradient, const char* what) {
      for (Index i = 0; i < values.view().size(); ++i) {
        float& value = values.view().data[i];
        const float kept = value, step = 1e-2f;
        value = kept + step;
        const double above = loss(), high = value;
        value = kept - step;
        const double below = loss(), low = value;
        value = kept;
        EXPECT_NEAR(gradient.view().data[i], (above - below) / (high - low), 5e-4) << what << ' ' << i;
      }
    };
    expect_slopes(f.gate_up_bias, f.d_gate_up_bias, "gate_up_bias");
    expect_slopes(f.down_bias, f.d_down_bias, "down_bias");
    expect_slopes(f.gate_up, f.d_gate_up, "gate_up");
    expect_slopes(f.down, f.d_down, "down");
    expect_slopes(x, d_x, "x");
    if (gated) expect_slopes(f.gate, f.d_gate, "gate");
  }
}

TEST(SharedExpert, RefusesWeightsAndGradientsThatDoNotFit) {
  Fixture f;
  Matrix narrow(1, kHidden - 1);
  SharedExpertWeights wrong = f.views(true);
  wrong.gate = narrow;
  EXPECT_THROW(SharedExpert{wrong}, ShapeError);
  wrong = f.views(true);
  wrong.d_down = f.d_gate_up;
  EXPECT_THROW(SharedExpert{wrong}, ShapeError);
  wrong = f.views(true);
  wrong.gate_up = f.gate_up.view().rows_from(0, kWidth);
  EXPECT_THROW(SharedExpert{wrong}, ShapeError);
}

TEST(SharedExpert, RefusesABackwardOfOtherTokens) {
  Fixture f;
  SharedExpert expert(f.views(false));
  SharedExpertWorkspace workspace;
  Matrix x = random_matrix(3, kHidden, 7);
  Matrix output(3, kHidden);
  expert.forward({}, x, output, workspace);
  EXPECT_THROW(expert.backward({}, Matrix(4, kHidden), Matrix(4, kHidden), Matrix(4, kHidden), workspace),
               ShapeError);
}

}  // namespace
}  // namespace moeloom
