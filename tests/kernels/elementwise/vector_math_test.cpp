#include "kernels/elementwise/vector_math.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kSmallestNormal = std::numeric_limits<float>::min();

/// Distance in units of the last place of the true value, whose unit does not shrink below the subnormals'.
double ulps(float got, double truth) {
  const double magnitude = std::max(std::abs(truth), static_cast<double>(kSmallestNormal));
  const double unit = std::ldexp(1.0, std::ilogb(magnitude) - 23);
  return std::abs(static_cast<double>(got) - truth) / unit;
}

/// Every float from -range to range in steps of a few hundred representable ones, so small magnitudes are
/// dense.
std::vector<float> sweep(float range) {
  std::vector<float> points = {0.0f, -0.0f};
  for (std::uint32_t bits = 1; std::bit_cast<float>(bits) <= range; bits += 379) {
    points.push_back(std::bit_cast<float>(bits));
    points.push_back(-std::bit_cast<float>(bits));
  }
  return points;
}

TEST(VectorExp, IsWithinOneUlpWhereTheResultIsNormal) {
  double worst = 0;
  for (const float x : sweep(89.0f)) {
    const double truth = std::exp(static_cast<double>(x));
    if (truth < kSmallestNormal || truth > std::numeric_limits<float>::max()) continue;
    worst = std::max(worst, ulps(vector_math::exp(x), truth));
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_GT(worst, 0.4) << "less than rounding alone: the sweep measured nothing";
}

TEST(VectorExp, UnderflowsGraduallyToZero) {
  for (float x = -87.0f; x > -110.0f; x -= 0.0037f) {
    EXPECT_LE(ulps(vector_math::exp(x), std::exp(static_cast<double>(x))), 1.0) << x;
  }
}

TEST(VectorExp, SaturatesAndPassesNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(vector_math::exp(88.73f), kInfinity);
  EXPECT_EQ(vector_math::exp(3e38f), kInfinity);
  EXPECT_EQ(vector_math::exp(kInfinity), kInfinity);
  EXPECT_EQ(vector_math::exp(-105.0f), 0.0f);
  EXPECT_EQ(vector_math::exp(-1e7f), 0.0f);  // whose exponent wraps
  EXPECT_EQ(vector_math::exp(-3e38f), 0.0f);
  EXPECT_EQ(vector_math::exp(-kInfinity), 0.0f);
  EXPECT_EQ(vector_math::exp(0.0f), 1.0f);
  EXPECT_EQ(vector_math::exp(-0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(vector_math::exp(nan)));
  EXPECT_TRUE(std::isnan(vector_math::exp(-nan)));
}

TEST(VectorExp, GivesTheSameBitsInALoopAndAlone) {
  const std::vector<float> points = sweep(110.0f);
  std::vector<float> together(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) together[i] = vector_math::exp(points[i]);
  for (std::size_t i = 0; i < points.size(); i += 101) {
    volatile float alone = points[i];  // keeps the compiler from joining these calls
    EXPECT_EQ(together[i], vector_math::exp(alone)) << points[i];
  }
}

TEST(VectorExp, HasTheSameBitsInTheFormForNonpositiveNumbers) {
  for (const float x : sweep(110.0f)) {
    if (x > 0) continue;
    ASSERT_EQ(vector_math::exp_of_nonpositive(x), vector_math::exp(x)) << x;
  }
  EXPECT_EQ(vector_math::exp_of_nonpositive(-1e7f), 0.0f);  // whose exponent wraps
  EXPECT_EQ(vector_math::exp_of_nonpositive(-3e38f), 0.0f);
  EXPECT_EQ(vector_math::exp_of_nonpositive(-kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(vector_math::exp_of_nonpositive(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorLog, IsWithinTwoUlpsOrAnUlpOfOne) {
  for (const float x : sweep(std::numeric_limits<float>::max())) {
    if (!(x >= kSmallestNormal)) continue;
    const double truth = std::log(static_cast<double>(x));
    const double error = std::abs(static_cast<double>(vector_math::log_of_normal(x)) - truth);
    ASSERT_LE(error, std::max(2 * 0x1p-23 * std::abs(truth), 0x1p-23)) << x;
  }
  for (const float x : {0.0f, 1e-45f, 1e-40f})
    EXPECT_TRUE(std::abs(x * vector_math::log_of_normal(x)) < 1e-37f) << x;
}

// Bounds: exp 1 ulp, then one addition, one division and at most two products, each rounded once.
TEST(VectorSigmoid, IsAccurateInBothTails) {
  for (const float x : sweep(87.0f)) {
    const double truth = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
    const double complement = 1.0 / (1.0 + std::exp(static_cast<double>(x)));
    const vector_math::Sigmoid got = vector_math::sigmoid(x);
    ASSERT_LE(ulps(got.value, truth), 4.0) << x;
    if (x <= 70.0f)
      ASSERT_LE(ulps(got.complement, complement), 4.0) << x;
    else
      ASSERT_NEAR(got.complement, 0, 4e-31) << x;
  }
}

TEST(VectorSoftplus, IsAccurateFarBelowZeroAndSaturates) {
  double worst = 0;
  for (const float x : sweep(87.0f))
    worst = std::max(worst, ulps(vector_math::softplus(x), std::log1p(std::exp(static_cast<double>(x)))));
  EXPECT_LE(worst, 4.0);
  EXPECT_EQ(vector_math::softplus(3e38f), 3e38f);
  EXPECT_EQ(vector_math::softplus(kInfinity), kInfinity);
  EXPECT_EQ(vector_math::softplus(-kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(vector_math::softplus(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorSilu, IsAccurateAndItsSlopeIsItsDerivative) {
  for (const float x : sweep(87.0f)) {
    const double sigmoid = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
    const double complement = 1.0 / (1.0 + std::exp(static_cast<double>(x)));
    const double slope = sigmoid * (1 + x * complement);
    const vector_math::ValueSlope got = vector_math::silu_slope(x);
    ASSERT_LE(ulps(got.value, x * sigmoid), 5.0) << x;
    ASSERT_EQ(got.value, vector_math::silu(x)) << x;
    // The slope crosses zero near x = -1.278, where two terms of about sigmoid(x) cancel.
    ASSERT_NEAR(got.slope, slope, 8 * 0x1p-24 * sigmoid * (1 + std::abs(x) * complement) + 1e-44) << x;
  }
}

TEST(VectorSilu, HasFiniteTails) {
  for (const float x : {88.0f, 90.0f, 1e4f, 3e38f}) {
    EXPECT_EQ(vector_math::silu_slope(x).value, x);
    EXPECT_EQ(vector_math::silu_slope(x).slope, 1.0f);
    EXPECT_NEAR(vector_math::silu_slope(-x).value, 0.0f, 1e-35f);
    EXPECT_NEAR(vector_math::silu_slope(-x).slope, 0.0f, 1e-35f);
  }
  EXPECT_TRUE(std::isnan(vector_math::silu(std::numeric_limits<float>::quiet_NaN())));
}

struct GeluForm {
  const char* name;
  float (*value)(float);
  vector_math::ValueSlope (*slope)(float);
  /// Phi, or what stands for it, at x and its derivative.
  double (*share)(double);
  double (*share_slope)(double);
};

double inner(double x) {
  return std::sqrt(8 / M_PI) * (x + static_cast<double>(0.044715f) * x * x * x);
}
double inner_slope(double x) {
  return std::sqrt(8 / M_PI) * (1 + 3 * static_cast<double>(0.044715f) * x * x);
}

const GeluForm kGeluForms[] = {
    {"tanh", vector_math::gelu_tanh, vector_math::gelu_tanh_slope,
     [](double x) { return 1 / (1 + std::exp(-inner(x))); },
     [](double x) { return inner_slope(x) / (1 + std::exp(-inner(x))) / (1 + std::exp(inner(x))); }},
    {"exact", vector_math::gelu, vector_math::gelu_slope,
     [](double x) { return std::erfc(-x / std::sqrt(2)) / 2; },
     [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }}};

// The exponent's rounding, up to 100 units of 2^-24, is an error of the result relative to the share's own
// size; in the middle a polynomial of nine terms costs a few ulps.
TEST(VectorGelu, IsAccurateAndItsSlopeIsItsDerivative) {
  for (const GeluForm& form : kGeluForms)
    for (const float x : sweep(20.0f)) {
      const double share = form.share(x), slope = share + x * form.share_slope(x);
      const double unit = 0x1p-24 * (1 + 0.5 * double{x} * x) * std::min(share, 1.0);
      const vector_math::ValueSlope got = form.slope(x);
      ASSERT_NEAR(got.value, x * share, 10 * std::abs(x) * unit + 1e-37) << form.name << ' ' << x;
      ASSERT_NEAR(form.value(x), x * share, 10 * std::abs(x) * unit + 1e-37) << form.name << ' ' << x;
      ASSERT_NEAR(got.slope, slope, 16 * (1 + double{x} * x) * unit + 1e-37) << form.name << ' ' << x;
    }
}

TEST(VectorGelu, HasFiniteTails) {
  for (const GeluForm& form : kGeluForms) {
    for (const float x : {20.0f, 88.0f, 1e4f, 1e13f, 3e38f}) {
      EXPECT_EQ(form.slope(x).value, x) << form.name;
      EXPECT_EQ(form.slope(x).slope, 1.0f) << form.name;
      EXPECT_EQ(form.slope(-x).value, 0.0f) << form.name;
      EXPECT_EQ(form.slope(-x).slope, 0.0f) << form.name;
    }
    EXPECT_EQ(form.value(0.0f), 0.0f) << form.name;
    EXPECT_NEAR(form.slope(0.0f).slope, 0.5f, 6e-8) << form.name;
    EXPECT_TRUE(std::isnan(form.value(std::numeric_limits<float>::quiet_NaN()))) << form.name;
    EXPECT_TRUE(std::isnan(form.slope(-std::numeric_limits<float>::quiet_NaN()).slope)) << form.name;
  }
}

}  // namespace
}  // namespace moeloom
