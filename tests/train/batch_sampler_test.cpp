#include "train/batch_sampler.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"

#include <optional>
#include <set>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// A file in which token i is i, so that a token tells where it was read.
class CountedTokens {
 public:
  explicit CountedTokens(Index count) {
    std::string bytes;
    for (Index i = 0; i < count; ++i) bytes += testing::bytes_of_number(static_cast<std::uint16_t>(i));
    testing::write_bytes(folder_ / "tokens.bin", bytes);
    source_.emplace(folder_ / "tokens.bin", TokenFormat::kU16);
  }
  const TokenSource& source() const { return *source_; }

 private:
  testing::TemporaryFolder folder_;
  std::optional<TokenSource> source_;
};

/// Where each window starts, after a look at its tokens: they follow each other, and so do the targets.
std::vector<std::int32_t> starts_of(const Batch& batch) {
  EXPECT_EQ(std::ssize(batch.input_ids), batch.tokens());
  EXPECT_EQ(std::ssize(batch.targets), batch.tokens());
  EXPECT_TRUE(batch.is_real.empty());
  std::vector<std::int32_t> starts;
  for (Index t = 0; t < batch.tokens(); ++t) {
    const std::int32_t token = batch.input_ids[static_cast<std::size_t>(t)];
    if (t % batch.sequence_length == 0) starts.push_back(token);
    EXPECT_EQ(token, starts.back() + t % batch.sequence_length);
    EXPECT_EQ(batch.targets[static_cast<std::size_t>(t)], token + 1);
  }
  return starts;
}

/// Of the whole global batch, in its order.
std::vector<std::int32_t> global_starts(const TokenSource& tokens, Split split, BatchShape shape, Index world,
                                        Index step, std::uint64_t seed) {
  const BatchSampler sampler(tokens, split, shape, world, seed);
  std::vector<std::int32_t> starts;
  for (Index rank = 0; rank < world; ++rank)
    for (Index micro = 0; micro < shape.micro_batches; ++micro) {
      const Batch batch = sampler.train(step, micro, rank);
      EXPECT_EQ(batch.sequences, shape.sequences_per_micro_batch(world));
      for (const std::int32_t start : starts_of(batch)) starts.push_back(start);
    }
  return starts;
}

TEST(BatchSampler, TheGlobalBatchDependsOnSeedAndStepAlone) {
  const CountedTokens tokens(5000);
  const Split split = split_tokens(5000, 0.1);
  const CounterRandom random(7, stream_of("train-batch"));
  for (const Index step : {0, 1, 41}) {
    std::vector<std::int32_t> expected;
    for (Index g = 0; g < 12; ++g)
      expected.push_back(
          static_cast<std::int32_t>(random.below(4500 - 16, static_cast<std::uint64_t>(step * 12 + g))));
    for (const Index world : {1, 2, 3, 4, 6, 12})
      for (const Index accumulation : {1, 2, 3}) {
        if (12 % (world * accumulation) != 0) continue;
        EXPECT_EQ(global_starts(tokens.source(), split, {12, 16, accumulation}, world, step, 7), expected)
            << "step " << step << ", " << world << " ranks, accumulation " << accumulation;
      }
  }
  EXPECT_NE(global_starts(tokens.source(), split, {12, 16}, 1, 0, 8),
            global_starts(tokens.source(), split, {12, 16}, 1, 0, 7));
}

TEST(BatchSampler, WindowsStartAtEveryPlaceOfTheTrainingPartAndNowhereElse) {
  const CountedTokens tokens(60);
  struct Case {
    Split split;
    Index sequence_length, first, last;
  };
  const Case cases[] = {
      {{0, 9, 9, 60}, 8, 0, 0},       // one place: eight tokens and the target of the last
      {{0, 10, 10, 60}, 8, 0, 1},     // two places
      {{20, 40, 40, 60}, 4, 20, 35},  // in the middle of the file
      {{0, 60, 60, 60}, 1, 0, 58},    // sequences of one token, up to the last of the file
  };
  for (const Case& c : cases) {
    std::set<std::int32_t> seen;
    for (Index step = 0; step < 100; ++step)
      for (const std::int32_t start :
           global_starts(tokens.source(), c.split, {8, c.sequence_length}, 1, step, 3))
        seen.insert(start);
    EXPECT_EQ(*seen.begin(), c.first);
    EXPECT_EQ(*seen.rbegin(), c.last);
    EXPECT_EQ(std::ssize(seen), c.last - c.first + 1) << "800 draws of at most 59 places miss none";
  }
}

TEST(BatchSampler, DealsHeldOutWindowsInStretchesAndGivesEveryRankAsManyBatches) {
  const CountedTokens tokens(100);
  const Split split{0, 59, 59, 100};  // 41 held-out tokens: ten windows of four, whose targets need one more
  struct Case {
    const char* name;
    Index world, count, per_batch;
    std::vector<std::vector<Index>> sequences;  // [rank][batch]
  };
  const Case cases[] = {
      {"one rank", 1, 10, 4, {{4, 4, 2}}},
      {"fewer windows than wished for", 1, 1000, 10, {{10}}},
      {"two ranks", 2, 10, 3, {{3, 2}, {3, 2}}},
      {"a count that ranks do not divide", 3, 10, 2, {{2, 2}, {2, 2}, {2, 0}}},
      {"fewer windows than ranks", 4, 3, 2, {{1}, {1}, {1}, {0}}},
      {"one window", 3, 1, 1, {{1}, {0}, {0}}},
      {"none", 2, 0, 5, {{}, {}}},
      {"less than none", 2, -1, 5, {{}, {}}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const BatchSampler sampler(tokens.source(), split, {c.world, 4}, c.world, 1);
    std::vector<std::int32_t> starts;
    for (Index rank = 0; rank < c.world; ++rank) {
      std::vector<Index> sequences;
      for (const Batch& batch : sampler.heldout(c.count, c.per_batch, rank)) {
        EXPECT_EQ(batch.sequence_length, 4);
        sequences.push_back(batch.sequences);
        for (const std::int32_t start : starts_of(batch)) starts.push_back(start);
      }
      EXPECT_EQ(sequences, c.sequences[static_cast<std::size_t>(rank)]) << "rank " << rank;
    }
    for (std::size_t i = 0; i < starts.size(); ++i) EXPECT_EQ(starts[i], 59 + 4 * static_cast<Index>(i));
  }
}

TEST(BatchSampler, HasNoHeldOutWindowInAPartThatIsTooShort) {
  const CountedTokens tokens(100);
  for (const Index held : {0, 1, 4})
    EXPECT_TRUE(BatchSampler(tokens.source(), {0, 90, 90, 90 + held}, {1, 4}, 1, 1).heldout(9, 1, 0).empty())
        << held << " tokens";
  EXPECT_EQ(BatchSampler(tokens.source(), {0, 90, 90, 95}, {1, 4}, 1, 1).heldout(9, 1, 0).size(), 1u);
}

TEST(BatchSampler, RefusesWhatCannotBeDealt) {
  const CountedTokens tokens(100);
  const Split split = split_tokens(100, 0.0);
  EXPECT_THROW(BatchSampler(tokens.source(), split, {6, 4}, 4, 1), ShapeError);
  EXPECT_THROW(BatchSampler(tokens.source(), split, {4, 4, 3}, 2, 1), ShapeError);
  EXPECT_THROW(BatchSampler(tokens.source(), split, {1, 100}, 1, 1), ShapeError)
      << "no token for the last target";
  EXPECT_NO_THROW(BatchSampler(tokens.source(), split, {1, 99}, 1, 1));
  EXPECT_THROW(BatchSampler(tokens.source(), split, {1, 4}, 1, 1).heldout(1, 0, 0), ShapeError);
}

TEST(SplitTokens, HoldsOutTheLastPart) {
  struct Case {
    Index tokens;
    double fraction;
    Index held;
  };
  const Case cases[] = {{0, 0.5, 0}, {1, 0.5, 0}, {100, 0.0, 0}, {100, 0.25, 25}, {103, 0.5, 51}};
  for (const Case& c : cases) {
    const Split split = split_tokens(c.tokens, c.fraction);
    EXPECT_EQ(split.train_begin, 0);
    EXPECT_EQ(split.train_end, c.tokens - c.held) << c.tokens;
    EXPECT_EQ(split.heldout_begin, split.train_end);
    EXPECT_EQ(split.heldout_end, c.tokens);
  }
}

TEST(SplitViolations, ListEveryPartThatCannotHoldASequence) {
  EXPECT_TRUE(split_violations(18, 0.5, 8, 1).empty()) << "nine tokens each: eight and a target";
  EXPECT_TRUE(split_violations(9, 0.0, 8, 1).empty()) << "nothing held out, nothing asked of it";
  EXPECT_EQ(split_violations(8, 0.0, 8, 1),
            (std::vector<std::string>{
                "the training part holds 8 of 8 tokens, fewer than sequence length + 1 = "
                "9; give more data, a smaller sequence length or another held-out fraction"}));
  const auto both = split_violations(10, 0.5, 8, 1);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_NE(both[1].find("the held-out part holds 5 of 10 tokens"), std::string::npos) << both[1];
  EXPECT_EQ(split_violations(0, 0.1, 8, 1).size(), 2u);
}

TEST(SplitViolations, EveryRankNeedsASequenceOfItsOwn) {
  EXPECT_TRUE(split_violations(33, 0.0, 8, 4).empty()) << "4 x 8 inputs and the last target";
  EXPECT_EQ(split_violations(2, 0.0, 1, 4),
            (std::vector<std::string>{"the training part holds 2 of 2 tokens, fewer than 4 ranks x sequence "
                                      "length + 1 = 5; give more data, fewer ranks, a smaller sequence "
                                      "length or another held-out fraction"}));
  EXPECT_TRUE(split_violations(50, 0.2, 8, 4).empty()) << "the held-out part needs one for all ranks";
}

}  // namespace
}  // namespace moeloom
