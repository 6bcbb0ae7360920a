#include "tensor/lanes.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Lanes, LoadAndStoreAtAnyAddressAndNoMore) {
  std::array<float, at(kLanes + 4)> from{}, to{};
  std::iota(from.begin(), from.end(), 1.0f);
  for (std::size_t begin = 0; begin <= 4; ++begin) {
    to.fill(-1);
    store(load(from.data() + begin), to.data() + begin);
    for (std::size_t i = 0; i < to.size(); ++i)
      EXPECT_EQ(to[i], begin <= i && i < begin + at(kLanes) ? from[i] : -1) << i << " from " << begin;
  }
}

TEST(Lanes, BroadcastKeepsTheSignOfZero) {
  const Lanes zeros = broadcast(-0.0f);
  EXPECT_TRUE(std::signbit(zeros[0]) && std::signbit(zeros[kLanes - 1]));
  EXPECT_EQ(broadcast(3.5f)[1], 3.5f);
}

/// (1 + 2^-12)^2 - 1 has 2^-24, which a rounded product has not.
TEST(Lanes, MultiplyAddRoundsOnceWhereTheProcessorDoesInEveryLaneAsAlone) {
  const float a = 1 + 0x1p-12f;
  const float alone = multiply_add(a, a, -1.0f);
#if defined(__FMA__) || defined(__aarch64__)
  EXPECT_EQ(alone, 0x1p-11f + 0x1p-24f);
#else
  EXPECT_EQ(alone, 0x1p-11f);
#endif
  const Lanes lanes = multiply_add(broadcast(a), broadcast(a), broadcast(-1.0f));
  const Lanes mixed = multiply_add(a, broadcast(a), broadcast(-1.0f));
  for (Index lane = 0; lane < kLanes; ++lane) {
    EXPECT_EQ(lanes[lane], alone);
    EXPECT_EQ(mixed[lane], alone);
  }
}

/// The compiler must not round a product and a sum together on its own.
TEST(Lanes, APlainProductAndSumAreRoundedTwice) {
  volatile float a = 1 + 0x1p-12f;
  const float x = a;
  EXPECT_EQ(x * x - 1.0f, 0x1p-11f);
  const Lanes lanes = broadcast(x) * broadcast(x) - broadcast(1.0f);
  EXPECT_EQ(lanes[0], 0x1p-11f);
}

}  // namespace
}  // namespace moeloom
