#include "train/mixture.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>
#include <limits>
#include <numeric>

#include "support/expect_error.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kBlock = Mixture::kRowsOfBlock;

TEST(Mixture, DealsTheRowsOfEachSourceInTheirOrderAndCountsThem) {
  const Mixture mixture({0.7, 0.25, 0.05}, 3);
  std::vector<Index> next(3);
  for (Index number = 0; number < 2 * kBlock + 100; ++number) {
    const bool counted = number % 997 == 0 || number == kBlock;
    for (Index s = 0; counted && s < 3; ++s) ASSERT_EQ(mixture.rows_before(number, s), next[at(s)]) << number;
    const SourceRow row = mixture.row(number);
    ASSERT_EQ(row.row, next[at(row.source)]++) << number;
  }
}

TEST(Mixture, HasTheSharesOfItsWeights) {
  EXPECT_EQ(Mixture({0.7, 0.3}, 1).rows_per_source(), (std::vector<Index>{7000, 3000}));
  EXPECT_EQ(Mixture({14, 6}, 1).rows_per_source(), (std::vector<Index>{7000, 3000}));
  EXPECT_EQ(Mixture({5}, 1).rows_per_source(), std::vector<Index>{kBlock});
  EXPECT_EQ(Mixture({1, 1, 1}, 1).rows_per_source(), (std::vector<Index>{3334, 3333, 3333}));
  EXPECT_EQ(Mixture({1e-30, 1}, 1).rows_per_source(), (std::vector<Index>{1, kBlock - 1}));
  EXPECT_EQ(Mixture({1e308, 1e308}, 1).rows_per_source(), (std::vector<Index>{kBlock / 2, kBlock / 2}));
  const std::vector<Index> many = Mixture(std::vector<double>(at(kBlock), 1), 1).rows_per_source();
  EXPECT_EQ(many, std::vector<Index>(at(kBlock), 1));
}

/// Any thousand rows have about the shares of all.
TEST(Mixture, MixesFromTheBeginning) {
  const Mixture mixture({0.7, 0.3}, 3);
  for (Index begin = 0; begin < 3 * kBlock; begin += 1000)
    EXPECT_NEAR(static_cast<double>(mixture.rows_before(begin + 1000, 1) - mixture.rows_before(begin, 1)),
                300, 75)
        << begin;
}

TEST(Mixture, DependsOnTheSeedAndOnNothingThatWasAskedBefore) {
  const auto sources = [](std::uint64_t seed, const std::vector<Index>& numbers) {
    const Mixture mixture({0.5, 0.5}, seed);
    std::vector<Index> found;
    for (const Index number : numbers) found.push_back(mixture.row(number).source);
    return found;
  };
  std::vector<Index> numbers(200);
  std::iota(numbers.begin(), numbers.end(), kBlock - 100);
  const std::vector<Index> forward = sources(3, numbers);
  std::vector<Index> backward_numbers(numbers.rbegin(), numbers.rend());
  std::vector<Index> backward = sources(3, backward_numbers);
  std::ranges::reverse(backward);
  EXPECT_EQ(backward, forward);
  EXPECT_NE(sources(4, numbers), forward);
}

TEST(Mixture, RefusesWeightsThatAreNone) {
  for (const double wrong :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const std::string message = testing::message_of<ConfigError>([&] { Mixture({1, wrong}, 1); });
    EXPECT_NE(message.find("the weight of source 2 is "), std::string::npos) << message;
  }
  EXPECT_THROW(Mixture({}, 1), ConfigError);
  EXPECT_THROW(Mixture(std::vector<double>(at(kBlock + 1), 1), 1), ConfigError);
}

}  // namespace
}  // namespace moeloom
