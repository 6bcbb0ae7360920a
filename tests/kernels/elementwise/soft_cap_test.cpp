#include "kernels/elementwise/soft_cap.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(SoftCap, IsTheFormulaAndItsDerivativeFromNearNothingToFarBeyond) {
  std::vector<float> x = {0, -0.0f, 1e-8f, -3e-4f, 0.3f, -0.62f, 0.63f, 1, -2.5f, 7, -30, 400, 1e30f};
  for (const float cap : {0.5f, 1.0f, 30.0f}) {
    std::vector<float> capped = x, d(x.size(), 2.0f);
    std::vector<double> wide(x.begin(), x.end());
    soft_cap(cap, capped.data(), std::ssize(x));
    soft_cap(cap, wide.data(), std::ssize(x));
    soft_cap_backward(cap, capped.data(), d.data(), std::ssize(x));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double c = cap, tanh = std::tanh(static_cast<double>(x[i]) / c);
      EXPECT_NEAR(capped[i], c * tanh, 3e-7 * std::abs(c * tanh)) << x[i] << " at most " << cap;
      EXPECT_EQ(wide[i], c * tanh);
      EXPECT_NEAR(d[i], 2 * (1 - tanh * tanh), 1e-6);  // of a number that was rounded
      EXPECT_LE(std::abs(capped[i]), cap);
    }
  }
  float nan = std::numeric_limits<float>::quiet_NaN();
  soft_cap(2, &nan, 1);
  EXPECT_TRUE(std::isnan(nan));
}

}  // namespace
}  // namespace moeloom
