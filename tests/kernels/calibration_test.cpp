#include "moeloom/kernels/calibration.hpp"

#include "moeloom/base/errors.hpp"

#include <chrono>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Calibration, APackingsCostIsSharedByItsUses) {
  const GmmRates rates{.loop_seconds = 5, .gmm_seconds = 2, .pack_seconds = 4};
  EXPECT_EQ(predict(rates, 1).loop_seconds, 5);
  EXPECT_EQ(predict(rates, 1).gmm_seconds, 6);
  EXPECT_EQ(predict(rates, 4).loop_seconds, 5);
  EXPECT_EQ(predict(rates, 4).gmm_seconds, 3);
  EXPECT_THROW(predict(rates, 0), ShapeError);
}

TEST(Calibration, MeasuresEverythingAlsoWithoutABudgetOrRows) {
  for (const Index rows : {Index{0}, Index{1}, Index{7}}) {
    const GmmRates rates = measure_gmm_rates(20, 12, 3, rows, 0);
    EXPECT_GT(rates.loop_seconds, 0);
    EXPECT_GT(rates.gmm_seconds, 0);
    EXPECT_GT(rates.pack_seconds, 0);
  }
  EXPECT_THROW(measure_gmm_rates(0, 12, 3, 1, 0), ShapeError);
}

TEST(Calibration, ALargeLayerIsMeasuredInPartAndScaledUp) {
  const auto start = std::chrono::steady_clock::now();
  const GmmRates large = measure_gmm_rates(4096, 14336, 64, 100'000, 0);
  const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // 7 x 10^15 floating-point operations: no CPU does them in a minute, nor copies the 45 GB of masters in a
  // tenth of a second.
  EXPECT_GT(large.loop_seconds, 60);
  EXPECT_GT(large.gmm_seconds, 60);
  EXPECT_GT(large.pack_seconds, 0.1);
  EXPECT_LT(spent, 60) << "a part takes a second or so, also on a busy machine";
}

}  // namespace
}  // namespace moeloom
