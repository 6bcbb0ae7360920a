#include "moeloom/kernels/bf16_unit.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Bf16Unit, TheBestIsNotEmulationExactlyWhereTheCpuHasBf16) {
  EXPECT_EQ(best_bf16_unit() != Bf16Unit::kEmulated, cpu_has_bf16());
  EXPECT_EQ(cpu_has_bf16(), why_no_bf16().empty());
}

TEST(Bf16Unit, HaveNamesAndRequests) {
  EXPECT_EQ(name_of(Bf16Unit::kEmulated), "emulated");
  EXPECT_EQ(name_of(Bf16Unit::kPairs), "pairs");
  EXPECT_EQ(name_of(Bf16Unit::kTiles), "tiles");
  EXPECT_EQ(bf16_request_from_text("pairs"), Bf16Request::kPairs);
  EXPECT_EQ(bf16_request_from_text("emulate"), Bf16Request::kEmulate);
  for (const char* text : {"", "best", "Pairs", "1"}) EXPECT_EQ(bf16_request_from_text(text), std::nullopt);
}

}  // namespace
}  // namespace moeloom
