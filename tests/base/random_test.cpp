#include "moeloom/base/random.hpp"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr std::uint64_t kOnes = ~std::uint64_t{0};

TEST(CounterRandom, IsPhilox4x32WithTenRounds) {
  // Known answers published with Random123; bits() is the first two words, low word first.
  EXPECT_EQ(CounterRandom(0, 0).bits(0), 0xe169c58d6627e8d5u);
  EXPECT_EQ(CounterRandom(kOnes, kOnes).bits(kOnes), 0x41c83b0e408f276du);
  // Counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0 (digits of pi).
  EXPECT_EQ(CounterRandom(0x299f31d0a4093822u, 0x0370734413198a2eu).bits(0x85a308d3243f6a88u),
            0x94fdccebd16cfe09u);
}

TEST(CounterRandom, DependsOnSeedStreamAndPositionAlone) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (std::uint64_t stream = 0; stream < 4; ++stream)
      for (std::uint64_t position = 0; position < 64; ++position)
        seen.insert(CounterRandom(seed, stream).bits(position));
  EXPECT_EQ(seen.size(), 4u * 4u * 64u);
  EXPECT_EQ(CounterRandom(1, 2).bits(3), CounterRandom(1, 2).bits(3));
}

TEST(CounterRandom, StaysBelowItsBoundAndReachesAllOfIt) {
  const CounterRandom random(11, 0);
  for (const std::uint64_t bound : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{7}}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 300; ++i) seen.insert(random.below(bound, i));
    EXPECT_EQ(seen.size(), bound);
    EXPECT_EQ(*seen.rbegin(), bound - 1);
  }
}

TEST(CounterRandom, HasTheMomentsOfItsDistributions) {
  const CounterRandom random(12, 0);
  constexpr int kCount = 100'000;
  double mean = 0, normal_mean = 0, normal_square = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double u = random.uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    const double n = random.normal(i);
    ASSERT_TRUE(std::isfinite(n));
    mean += u / kCount;
    normal_mean += n / kCount;
    normal_square += n * n / kCount;
  }
  // Five standard errors of 100 000 draws: 0.289, 1 and sqrt(2) over sqrt(100 000).
  EXPECT_NEAR(mean, 0.5, 0.0046);
  EXPECT_NEAR(normal_mean, 0.0, 0.016);
  EXPECT_NEAR(normal_square, 1.0, 0.023);
}

TEST(StreamOf, IsFnv1aOfTheName) {
  EXPECT_EQ(stream_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_NE(stream_of("ab"), stream_of("ba"));
}

}  // namespace
}  // namespace moeloom
