#include "plan/rates/calibration.hpp"

#include "moeloom/base/errors.hpp"

#include <chrono>
#include <set>

#include "support/sanitized.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Calibration, APackingsCostIsSharedByItsUses) {
  const GmmRates rates{.loop_seconds = 5, .gmm_seconds = 3, .packed_seconds = 2, .pack_seconds = 4};
  EXPECT_EQ(predict(rates, 1).loop_seconds, 5);
  EXPECT_EQ(predict(rates, 1).gmm_seconds, 3);
  EXPECT_EQ(predict(rates, 1).packed_seconds, 6);
  EXPECT_EQ(predict(rates, 4).loop_seconds, 5);
  EXPECT_EQ(predict(rates, 4).gmm_seconds, 3);
  EXPECT_EQ(predict(rates, 4).packed_seconds, 3);
  EXPECT_THROW(predict(rates, 0), ShapeError);
}

TEST(Calibration, MeasuresEverythingAlsoWithoutABudgetOrRows) {
  for (const Index rows : {Index{0}, Index{1}, Index{7}}) {
    const GmmRates rates = measure_gmm_rates({20, 12, 3, rows}, 0);
    EXPECT_GT(rates.loop_seconds, 0);
    EXPECT_GT(rates.gmm_seconds, 0);
    EXPECT_GT(rates.packed_seconds, 0);
    EXPECT_GT(rates.pack_seconds, 0);
  }
  EXPECT_THROW(measure_gmm_rates({0, 12, 3, 1}, 0), ShapeError);
}

TEST(Calibration, OnlyTheFirstMicroBatchOfAStepIsSparedTheAdding) {
  const GmmRates rates{.loop_seconds = 5,
                       .gmm_seconds = 2,
                       .packed_seconds = 3,
                       .loop_add_seconds = 1,
                       .gmm_add_seconds = -0.5};
  EXPECT_EQ(predict(rates, 1).loop_seconds, 5);
  EXPECT_EQ(predict(rates, 4).loop_seconds, 5.75);
  EXPECT_EQ(predict(rates, 4).gmm_seconds, 1.625);
  EXPECT_EQ(predict(rates, 4).packed_seconds, 2.625);
}

TEST(Calibration, RowsComeFromTheSourcesAsEvenlyAsTheyCan) {
  EXPECT_EQ(even_rows({64, 32, 2, 7, 3}), (std::vector<Index>{2, 2, 3, 2, 2, 3}));
  EXPECT_EQ(even_rows({64, 32, 2, 1, 2}), (std::vector<Index>{0, 1, 0, 1}));
  EXPECT_EQ(even_rows({64, 32, 3, 0, 1}), (std::vector<Index>{0, 0, 0}));
}

TEST(Calibration, RowsAreOneOfABoundedSetWithinASixth) {
  std::set<Index> measured;
  for (Index rows = 0; rows < 5000; ++rows) {
    const GmmCase c = calibration_case({64, 32, 4, rows, 2});
    EXPECT_EQ(c, (GmmCase{64, 32, 4, c.rows_per_expert, 2})) << "nothing else is rounded";
    measured.insert(c.rows_per_expert);
    if (rows < 1 || rows > 256) continue;
    const double ratio = static_cast<double>(c.rows_per_expert) / static_cast<double>(rows);
    EXPECT_TRUE(ratio > 0.83 && ratio < 1.21) << rows << " -> " << c.rows_per_expert;
  }
  EXPECT_EQ(*measured.begin(), 1);
  EXPECT_EQ(*measured.rbegin(), 256);
  EXPECT_EQ(measured.size(), 16u) << "1, 2, 3, 4, 6, 8, 11, 16, ...: 1.4 is rounded to 1";
}

TEST(Calibration, ProductsScaleWithRowsAndWeightsAndPackingWithWeights) {
  const GmmRates rates{.loop_seconds = 1,
                       .gmm_seconds = 2,
                       .packed_seconds = 6,
                       .pack_seconds = 3,
                       .loop_add_seconds = 4,
                       .gmm_add_seconds = 5};
  const GmmRates more = scaled(rates, {8, 4, 2, 16}, {16, 4, 2, 48});
  EXPECT_EQ(more.loop_seconds, 6);
  EXPECT_EQ(more.gmm_seconds, 12);
  EXPECT_EQ(more.packed_seconds, 36);
  EXPECT_EQ(more.pack_seconds, 6);
  EXPECT_EQ(more.loop_add_seconds, 8);
  EXPECT_EQ(more.gmm_add_seconds, 10);
}

TEST(Calibration, ALargeLayerIsMeasuredInPartAndScaledUp) {
  const auto start = std::chrono::steady_clock::now();
  const GmmRates large = measure_gmm_rates({4096, 14336, 64, 100'000}, 0);
  const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // 7 x 10^15 floating-point operations: no CPU does them in a minute, nor copies the 45 GB of masters in a
  // tenth of a second.
  EXPECT_GT(large.loop_seconds, 60);
  EXPECT_GT(large.gmm_seconds, 60);
  EXPECT_GT(large.packed_seconds, 60);
  EXPECT_GT(large.pack_seconds, 0.1);
  EXPECT_LT(spent, testing::kSanitized ? 600 : 60) << "a part takes a second or so, also on a busy machine";
}

}  // namespace
}  // namespace moeloom
