#include "moeloom/kernels/elementwise/rope_table.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(RopeTable, IsExactAtFarPositions) {
  const RopeTable table = make_rope_table(100001, {.rotary_dim = 8, .theta = 1e6});
  for (Index i = 0; i < 4; ++i) {
    const double angle = 100000.0 * std::pow(1e6, -2.0 * static_cast<double>(i) / 8.0);
    EXPECT_EQ(table.cosine.row(100000)[i], static_cast<float>(std::cos(angle)));
    EXPECT_EQ(table.sine.row(100000)[i], static_cast<float>(std::sin(angle)));
  }
  EXPECT_EQ(table.rotary_dim(), 8);
  EXPECT_EQ(make_rope_table(0, {.rotary_dim = 8}).positions(), 0);
}

TEST(RopeTable, DividesEveryFrequencyByALinearFactor) {
  const auto plain = rope_frequencies(10, {.rotary_dim = 6, .theta = 500});
  const auto scaled = rope_frequencies(10, {.rotary_dim = 6, .theta = 500, .scaling = LinearScaling{2.5}});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 2.5);
}

// Pair i turns 1000 / (2 pi 10^i) times over 1000 positions: 159, 15.9, 1.59, 0.159.
constexpr RopeSettings kFourPairs = {.rotary_dim = 8, .theta = 10000, .scaling = {}};

TEST(RopeTable, KeepsFastFrequenciesAndDividesSlowOnesAsLlama3) {
  RopeSettings settings = kFourPairs;
  settings.scaling = Llama3Scaling{
      .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 1000};
  const auto got = rope_frequencies(10, settings);
  const double share = (10 / (2 * M_PI) - 1) / 3;
  EXPECT_DOUBLE_EQ(got[0], 1);
  EXPECT_DOUBLE_EQ(got[1], 0.1);
  EXPECT_NEAR(got[2], 0.01 * (share + (1 - share) / 8), 1e-15);
  EXPECT_DOUBLE_EQ(got[3], 0.001 / 8);
}

TEST(RopeTable, RampsBetweenBetaFastAndBetaSlowAsYarn) {
  RopeSettings settings = kFourPairs;
  YarnScaling yarn{.factor = 4, .beta_fast = 32, .beta_slow = 1, .original_max_position_embeddings = 1000};
  // The ramp's ends: log10(1000 / (2 pi turns)) = 0.697 and 2.202, rounded outwards to 0 and 3.
  settings.scaling = yarn;
  const auto whole = rope_frequencies(10, settings);
  for (std::size_t i = 0; i < 4; ++i) {
    const double ramp = static_cast<double>(i) / 3;
    EXPECT_NEAR(whole[i], std::pow(10, -static_cast<double>(i)) * (1 - ramp + ramp / 4), 1e-15) << i;
  }
  yarn.truncate = false;
  settings.scaling = yarn;
  const auto fraction = rope_frequencies(10, settings);
  const double begin = std::log10(1000 / (64 * M_PI)), end = std::log10(1000 / (2 * M_PI));
  const double ramp = (1 - begin) / (end - begin);
  EXPECT_DOUBLE_EQ(fraction[0], 1);
  EXPECT_NEAR(fraction[1], 0.1 * (1 - ramp + ramp / 4), 1e-15);
  EXPECT_DOUBLE_EQ(fraction[3], 0.001 / 4);
}

TEST(RopeTable, RampsInOneStepWhereYarnsRampHasNoLength) {
  RopeSettings settings = kFourPairs;
  settings.scaling = YarnScaling{
      .factor = 4, .beta_fast = 32, .beta_slow = 32, .original_max_position_embeddings = 64 * M_PI};
  const auto got = rope_frequencies(10, settings);  // both ends at pair 0
  EXPECT_DOUBLE_EQ(got[0], 1);
  EXPECT_DOUBLE_EQ(got[1], 0.1 / 4);
}

TEST(RopeTable, TurnsByALargerThetaWithAnAlpha) {
  RopeSettings scaled = kFourPairs, larger = kFourPairs;
  scaled.scaling = NtkAlphaScaling{.alpha = 1000};
  larger.theta *= std::pow(1000.0, 8.0 / 6.0);
  const auto got = rope_frequencies(10, scaled), expected = rope_frequencies(10, larger);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-14 * expected[i]);
  EXPECT_EQ(rope_attention_factor(10, scaled), 1);
}

TEST(RopeTable, CarriesTheAttentionFactor) {
  const auto factor_of = [](const RopeScaling& scaling) {
    return rope_attention_factor(8, {.rotary_dim = 4, .scaling = scaling});
  };
  EXPECT_EQ(factor_of({}), 1);
  EXPECT_EQ(factor_of(LinearScaling{4}), 1);
  EXPECT_DOUBLE_EQ(factor_of(YarnScaling{.factor = 4}), 1 + 0.1 * std::log(4));
  EXPECT_DOUBLE_EQ(factor_of(YarnScaling{.factor = 0.5}), 1);
  EXPECT_DOUBLE_EQ(factor_of(YarnScaling{.factor = 4, .attention_factor = 0.7}), 0.7);
  EXPECT_DOUBLE_EQ(factor_of(YarnScaling{.factor = 4, .mscale = 1, .mscale_all_dim = 0.8}),
                   (1 + 0.1 * std::log(4)) / (1 + 0.08 * std::log(4)));
  EXPECT_DOUBLE_EQ(factor_of(YarnScaling{.factor = 4, .mscale = 0.5}), 1 + 0.1 * std::log(4))
      << "without mscale_all_dim mscale has no effect";
  EXPECT_DOUBLE_EQ(factor_of(LongRopeScaling{.factor = 32, .original_max_position_embeddings = 4096}),
                   std::sqrt(1 + std::log(32) / std::log(4096)));
  EXPECT_DOUBLE_EQ(factor_of(LongRopeScaling{.factor = 32, .attention_factor = 1.25}), 1.25);
  const LongRopeScaling phimoe{
      .short_mscale = 1.1, .long_mscale = 1.3, .original_max_position_embeddings = 20};
  EXPECT_EQ(rope_attention_factor(20, {.rotary_dim = 4, .scaling = phimoe}), 1.1);
  EXPECT_EQ(rope_attention_factor(21, {.rotary_dim = 4, .scaling = phimoe}), 1.3);

  const RopeTable table = make_rope_table(2, {.rotary_dim = 4, .scaling = YarnScaling{.factor = 4}});
  EXPECT_EQ(table.cosine.row(0)[0], static_cast<float>(1 + 0.1 * std::log(4)));
}

TEST(RopeTable, TakesLongRopesFactorsByTheLengthOfTheSequence) {
  const RopeSettings settings{.rotary_dim = 4,
                              .theta = 100,
                              .scaling = LongRopeScaling{.short_factor = {1, 2},
                                                         .long_factor = {4, 8},
                                                         .factor = 1,
                                                         .original_max_position_embeddings = 20}};
  EXPECT_EQ(rope_frequencies(20, settings), (std::vector<double>{1, 0.05}));
  EXPECT_EQ(rope_frequencies(21, settings), (std::vector<double>{0.25, 0.0125}));
  EXPECT_EQ(roomy_rope_positions(17, settings), 20) << "room beyond 20 would take the long factors";
  EXPECT_EQ(roomy_rope_positions(21, settings), 32);
  const RopeTable near = make_rope_table(roomy_rope_positions(17, settings), settings);
  const RopeTable far = make_rope_table(roomy_rope_positions(21, settings), settings);
  EXPECT_TRUE(near.serves(1) && near.serves(20) && !near.serves(21));
  EXPECT_TRUE(far.serves(21) && far.serves(32) && !far.serves(33) && !far.serves(20));
  const RopeTable both = make_rope_table_of_lengths(32, settings);
  EXPECT_TRUE(both.serves(1) && both.serves(20) && both.serves(21) && both.serves(32) && !both.serves(33));
  for (const auto& [length, alone] : {std::pair(Index{20}, &near), std::pair(Index{32}, &far)})
    for (Index position = 0; position < length; ++position)
      for (Index pair = 0; pair < 2; ++pair) {
        const Index row = both.first_row(length) + position;
        EXPECT_EQ(both.cosine.row(row)[pair], alone->cosine.row(position)[pair])
            << length << ": " << position;
        EXPECT_EQ(both.sine.row(row)[pair], alone->sine.row(position)[pair]) << length << ": " << position;
      }
  EXPECT_EQ(make_rope_table_of_lengths(20, settings).first_row(20), 0) << "nothing is longer";
}

TEST(RopeTable, TurnsAnewExactlyWhereTheFrequenciesOfAGrowingSequenceChange) {
  RopeSettings longrope{.rotary_dim = 4, .theta = 10000};
  longrope.scaling = LongRopeScaling{
      .short_factor = {1, 2}, .long_factor = {3, 4}, .factor = 2, .original_max_position_embeddings = 6};
  RopeSettings yarn = kFourPairs;
  yarn.scaling = YarnScaling{.factor = 4, .original_max_position_embeddings = 6};
  for (const RopeSettings& settings : {kFourPairs, yarn, longrope})
    for (Index before = 1; before < 9; ++before)
      for (Index now = before; now < 9; ++now)
        EXPECT_EQ(rope_turns_anew(before, now, settings),
                  rope_frequencies(before, settings) != rope_frequencies(now, settings))
            << before << " to " << now;
}

TEST(RopeTable, ServesAnyShorterSequenceWhereNothingDependsOnTheLength) {
  EXPECT_EQ(roomy_rope_positions(17, kFourPairs), 32);
  const RopeTable table = make_rope_table(32, kFourPairs);
  EXPECT_TRUE(table.serves(0) && table.serves(1) && table.serves(32) && !table.serves(33));
}

// int(64 * 0.334) elements of MiMo's heads would turn: HF's arange(0, 21, 2) / 21 has eleven frequencies, and
// cos and sin reach 22 elements.
TEST(RopeTable, TurnsOneElementMoreThanAnOddWidth) {
  const std::vector<double> frequencies = rope_frequencies(4, {.rotary_dim = 7, .theta = 100});
  ASSERT_EQ(frequencies.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_DOUBLE_EQ(frequencies[i], std::pow(100.0, -2.0 * static_cast<double>(i) / 7));
  EXPECT_EQ(make_rope_table(4, {.rotary_dim = 7}).rotary_dim(), 8);
}

TEST(RopeTable, RefusesSettingsWithoutFrequencies) {
  const auto refuses = [](const RopeSettings& settings) {
    EXPECT_THROW(make_rope_table(4, settings), ShapeError);
  };
  refuses({.rotary_dim = -2});
  refuses({.rotary_dim = 8, .theta = 0});
  refuses({.rotary_dim = 8, .first_dim = -1});
  refuses({.rotary_dim = 8, .scaling = LinearScaling{0}});
  refuses({.rotary_dim = 8, .scaling = NtkAlphaScaling{0}});
  refuses({.rotary_dim = 2, .scaling = NtkAlphaScaling{2}});
  refuses({.rotary_dim = 8, .scaling = Llama3Scaling{.low_freq_factor = 4, .high_freq_factor = 3}});
  refuses({.rotary_dim = 8, .scaling = YarnScaling{.factor = -1}});
  refuses({.rotary_dim = 8, .theta = 1, .scaling = YarnScaling{.factor = 2}});
  refuses({.rotary_dim = 8, .scaling = YarnScaling{.original_max_position_embeddings = 0}});
  refuses({.rotary_dim = 4, .scaling = LongRopeScaling{.short_factor = {1, 1}, .long_factor = {1}}});
  refuses({.rotary_dim = 4, .scaling = LongRopeScaling{.short_factor = {1, 1}, .long_factor = {1, 0}}});
  refuses({.rotary_dim = 4,
           .scaling = LongRopeScaling{.short_factor = {1, 1}, .long_factor = {1, 1}, .short_mscale = 1.1}});
}

}  // namespace
}  // namespace moeloom
