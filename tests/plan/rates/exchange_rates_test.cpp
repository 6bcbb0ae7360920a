#include "plan/rates/exchange_rates.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(ExchangeRates, ALargeExchangeIsNoLargerInALargeGroup) {
  EXPECT_EQ(large_pair_rows(2), 1024);
  EXPECT_EQ(large_pair_rows(32), 1024);
  EXPECT_EQ(large_pair_rows(33), 992);
  for (const Index ranks : {64, 128, 1000, 8192}) EXPECT_LE(ranks * large_pair_rows(ranks), 32768) << ranks;
  EXPECT_EQ(large_pair_rows(100000), 4) << "a quarter of it is measured, too";
}

}  // namespace
}  // namespace moeloom
