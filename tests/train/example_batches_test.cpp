#include "train/example_batches.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "example_files.hpp"
#include "support/expect_error.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::MadeUpExamples;
using testing::message_of;

constexpr Index kRowLength = 24;

/// To so many ranks.
ExampleBatchesSettings dealt(Index world, Index micro_batches = 1, bool exact = false) {
  return {.batch = {.sequences = 12,
                    .length = kRowLength,
                    .micro_batches = micro_batches,
                    .exact = exact ? 1 : 0},
          .world = world,
          .seed = 3};
}

ExampleBatchesSettings row_by_row() {
  return {.batch = {.sequences = 1, .length = kRowLength}, .seed = 3};
}

ExampleBatches batches_of(const MadeUpExamples& examples, const ExampleBatchesSettings& settings) {
  return ExampleBatches({{&examples.file(), 1}}, settings);
}

/// A segment of a batch: its ids and targets.
using Segment = std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>;

/// What it should be of an example: as much as a row holds.
Segment segment_of(const Example& example) {
  Segment segment;
  const std::size_t length = std::min<std::size_t>(example.ids.size(), kRowLength);
  for (std::size_t t = 0; t < length; ++t) {
    segment.first.push_back(static_cast<std::int32_t>(example.ids[t]));
    const bool has_target = t + 1 < length && example.learned[t + 1] != 0;
    segment.second.push_back(has_target ? static_cast<std::int32_t>(example.ids[t + 1]) : kIgnored);
  }
  return segment;
}

bool has_target(const Segment& segment) {
  return std::ranges::any_of(segment.second, [](std::int32_t t) { return t != kIgnored; });
}

/// The segments of a batch that are no padding.
std::vector<Segment> segments_of(const Batch& batch) {
  check_segments(batch);
  std::vector<Segment> segments;
  for (std::size_t s = 0; s + 1 < batch.segment_offsets.size(); ++s) {
    const auto begin = batch.segment_offsets[s], end = batch.segment_offsets[s + 1];
    const auto real = std::count(batch.is_real.begin() + begin, batch.is_real.begin() + end, 1);
    EXPECT_TRUE(real == 0 || real == end - begin) << "a segment is padding or is not";
    segments.emplace_back();
    segments.back().first.assign(batch.input_ids.begin() + begin, batch.input_ids.begin() + end);
    segments.back().second.assign(batch.targets.begin() + begin, batch.targets.begin() + end);
    if (real > 0) continue;
    EXPECT_FALSE(has_target(segments.back()));
    segments.pop_back();
  }
  return segments;
}

/// Of an epoch that a step may end within: whole rows of one rank, a row a step.
std::multiset<Segment> epoch_of(const ExampleBatches& batches, Index epoch) {
  std::multiset<Segment> all;
  for (Index row = 0; row < batches.counts(0).rows; ++row)
    for (Segment& s : segments_of(batches.train(epoch * batches.counts(0).rows + row, 0, 0)))
      all.insert(std::move(s));
  return all;
}

TEST(ExampleBatches, AnEpochHasEveryExampleThatCanBeLearnedOnce) {
  const MadeUpExamples examples;
  const ExampleBatches batches = batches_of(examples, row_by_row());
  std::multiset<Segment> expected;
  Index too_long = 0, left_out = 0, tokens = 0, targets = 0;
  for (Index i = 0; i < examples.file().examples(); ++i) {
    const Example example = examples.example(i);
    too_long += std::ssize(example.ids) > kRowLength ? 1 : 0;
    left_out += std::max<Index>(std::ssize(example.ids) - kRowLength, 0);
    const Segment segment = segment_of(example);
    if (!has_target(segment)) continue;
    tokens += std::ssize(segment.first);
    targets += std::ssize(segment.second) - std::ranges::count(segment.second, kIgnored);
    expected.insert(segment);
  }
  EXPECT_EQ(epoch_of(batches, 0), expected);
  EXPECT_EQ(epoch_of(batches, 5), expected);
  const ExampleCounts& counts = batches.counts(0);
  EXPECT_EQ(counts.examples, examples.file().examples());
  EXPECT_EQ(counts.too_long, too_long);
  EXPECT_EQ(counts.left_out, left_out);
  EXPECT_EQ(counts.pieces, std::ssize(expected));
  EXPECT_EQ(counts.unlearned, counts.examples - counts.pieces);
  EXPECT_EQ(counts.tokens, tokens);
  EXPECT_EQ(counts.targets, targets);
  EXPECT_DOUBLE_EQ(counts.used_share,
                   static_cast<double>(tokens) / static_cast<double>(counts.rows * kRowLength));
}

TEST(ExampleBatches, TheGlobalBatchDependsOnSeedAndStepAlone) {
  const MadeUpExamples examples;
  const auto global_batch = [&](ExampleBatchesSettings settings, Index step, std::uint64_t seed) {
    settings.seed = seed;
    const ExampleBatches batches = batches_of(examples, settings);
    std::map<Index, Batch> by_place;
    for (Index rank = 0; rank < settings.world; ++rank)
      for (Index m = 0; m < settings.batch.micro_batches; ++m) {
        Batch batch = batches.train(step, m, rank);
        by_place[batch.first_token] = std::move(batch);
      }
    std::vector<std::int32_t> tokens;
    Index end = 0;
    for (const auto& [place, batch] : by_place) {
      EXPECT_EQ(place, std::exchange(end, end + batch.tokens()));
      tokens.insert(tokens.end(), batch.input_ids.begin(), batch.input_ids.end());
      tokens.insert(tokens.end(), batch.targets.begin(), batch.targets.end());
    }
    std::ranges::sort(tokens);
    EXPECT_EQ(end, 12 * kRowLength);
    return tokens;
  };
  for (const Index step : {0, 4, 7, 1000}) {
    const auto first = global_batch(dealt(1), step, 3);
    EXPECT_EQ(global_batch(dealt(1), step, 3), first);
    EXPECT_EQ(global_batch(dealt(4), step, 3), first);
    EXPECT_EQ(global_batch(dealt(2, 3), step, 3), first);
    EXPECT_EQ(global_batch(dealt(2, 3, true), step, 3), first);
    EXPECT_NE(global_batch(dealt(1), step, 4), first);
  }
}

/// Steps may be asked for in any order, as a resumed run or a replay does.
TEST(ExampleBatches, AStepDoesNotDependOnTheStepsBefore) {
  const MadeUpExamples examples({.examples = 20}), others({.examples = 90, .stream = 2});
  const std::vector<ExampleSource> sources = {{&examples.file(), 0.3}, {&others.file(), 0.7}};
  const ExampleBatches forward(sources, dealt(2));
  const ExampleBatches backward(sources, dealt(2));
  std::vector<Batch> batches;
  for (Index step = 0; step < 40; ++step) batches.push_back(forward.train(step, 0, 1));
  for (Index step = 39; step >= 0; --step) {
    const Batch batch = backward.train(step, 0, 1);
    EXPECT_EQ(batch.input_ids, batches[at(step)].input_ids) << step;
    EXPECT_EQ(batch.segment_offsets, batches[at(step)].segment_offsets) << step;
  }
}

TEST(ExampleBatches, CountsTheTokensAndTargetsOfAStepOfAllRanks) {
  const MadeUpExamples examples;
  const ExampleBatches batches = batches_of(examples, dealt(3, 2));
  for (Index step = 0; step < 9; ++step) {
    Index tokens = 0, targets = 0;
    for (Index rank = 0; rank < 3; ++rank)
      for (Index m = 0; m < 2; ++m) {
        const Batch batch = batches.train(step, m, rank);
        EXPECT_GT(batch.counted_targets(), 0) << "every row has one";
        tokens += std::ranges::count(batch.is_real, 1);
        targets += batch.counted_targets();
      }
    EXPECT_EQ(batches.tokens_of(step).tokens, tokens);
    EXPECT_EQ(batches.tokens_of(step).targets, targets);
  }
}

TEST(ExampleBatches, SourcesHaveTheirSharesAndAreCounted) {
  const MadeUpExamples examples({.examples = 40}), others({.examples = 90, .stream = 2});
  const ExampleBatches batches({{&examples.file(), 0.3}, {&others.file(), 0.7}}, dealt(1));
  ASSERT_EQ(batches.sources(), 2);
  const Index steps = 400;
  Index rows = 0, tokens = 0, targets = 0;
  for (Index step = 0; step < steps; ++step) {
    tokens += batches.tokens_of(step).tokens;
    targets += batches.tokens_of(step).targets;
  }
  ExampleProgress sum;
  for (Index s = 0; s < 2; ++s) {
    const ExampleProgress progress = batches.progress(s, steps);
    EXPECT_NEAR(static_cast<double>(progress.rows), (s == 0 ? 0.3 : 0.7) * 12 * steps, 0.05 * 12 * steps);
    EXPECT_DOUBLE_EQ(progress.epochs,
                     static_cast<double>(progress.rows) / static_cast<double>(batches.counts(s).rows));
    EXPECT_GE(progress.pieces, static_cast<Index>(progress.epochs) * batches.counts(s).pieces);
    rows += progress.rows;
    sum.tokens += progress.tokens;
    sum.targets += progress.targets;
  }
  EXPECT_EQ(rows, 12 * steps);
  EXPECT_EQ(sum.tokens, tokens);
  EXPECT_EQ(sum.targets, targets);
  EXPECT_EQ(batches.progress(0, 0).rows, 0);
}

TEST(ExampleBatches, AsManyStepsAsEpochsTakeReadEveryExample) {
  const MadeUpExamples examples;
  const ExampleBatches batches = batches_of(examples, dealt(1));
  for (const double epochs : {1.0, 2.5, 3.0}) {
    const Index steps = batches.steps_of(epochs);
    EXPECT_GE(batches.progress(0, steps).epochs, epochs);
    EXPECT_LT(batches.progress(0, steps - 1).epochs, epochs);
  }
  EXPECT_EQ(batches.steps_of(0.0), 1);
}

/// Without weights, files are read as one: at the end of an epoch each example of each file was read once.
TEST(ExampleBatches, AnEpochOfFilesWithoutWeightsHasEachExampleOnce) {
  const MadeUpExamples few({.examples = 40}), many({.examples = 900, .stream = 2});
  const ExampleBatches both({{&few.file()}, {&many.file()}}, row_by_row());
  std::multiset<Segment> expected;
  for (const MadeUpExamples* file : {&few, &many})
    expected.merge(epoch_of(batches_of(*file, row_by_row()), 0));
  const Index rows = both.counts(0).rows + both.counts(1).rows;
  ASSERT_EQ(both.steps_of(1), rows);
  EXPECT_EQ(both.steps_of(2.5), (5 * rows + 1) / 2);
  for (const Index epoch : {0, 3}) {
    std::multiset<Segment> found;
    for (Index step = epoch * rows; step < (epoch + 1) * rows; ++step)
      for (Segment& s : segments_of(both.train(step, 0, 0))) found.insert(std::move(s));
    EXPECT_EQ(found, expected) << epoch;
    for (Index s = 0; s < 2; ++s) {
      EXPECT_EQ(both.progress(s, epoch * rows).rows, epoch * both.counts(s).rows);
      EXPECT_DOUBLE_EQ(both.progress(s, (epoch + 1) * rows).epochs, static_cast<double>(epoch + 1));
    }
  }
}

/// With weights an epoch lasts until each source was read once, whoever is read more often meanwhile.
TEST(ExampleBatches, AnEpochOfAMixtureReadsEachSourceAtLeastOnce) {
  const MadeUpExamples few({.examples = 40}), many({.examples = 900, .stream = 2});
  for (const double weight : {0.1, 1.0, 5.0})
    for (const double epochs : {0.5, 1.0, 3.0}) {
      const ExampleBatches batches({{&few.file(), 1.0}, {&many.file(), weight}}, dealt(1));
      const Index steps = batches.steps_of(epochs);
      const auto least = [&](Index n) {
        return std::min(batches.progress(0, n).epochs, batches.progress(1, n).epochs);
      };
      EXPECT_GE(least(steps), epochs) << weight;
      EXPECT_LT(least(steps - 1), epochs) << weight;
    }
}

TEST(ExampleBatches, CountsTheTokensOfAnEpochUnderWay) {
  const MadeUpExamples few({.examples = 40}), many({.examples = 90, .stream = 2});
  const ExampleBatches batches({{&few.file()}, {&many.file()}}, dealt(1));
  Index tokens = 0, targets = 0;
  for (Index step = 0; step < 30; ++step) {
    EXPECT_EQ(batches.progress(0, step).tokens + batches.progress(1, step).tokens, tokens);
    EXPECT_EQ(batches.progress(0, step).targets + batches.progress(1, step).targets, targets);
    tokens += batches.tokens_of(step).tokens;
    targets += batches.tokens_of(step).targets;
  }
}

TEST(ExampleBatches, HoldsTheSameExamplesOutForEverySeedAndTrainsOnNoneOfThem) {
  const MadeUpExamples examples({.examples = 400, .longest = kRowLength});
  const auto heldout = [&](Index world, std::uint64_t seed, Index count) {
    const ExampleBatches batches = [&] {
      ExampleBatchesSettings settings = dealt(world);
      settings.seed = seed, settings.heldout = 0.1;
      return batches_of(examples, settings);
    }();
    EXPECT_EQ(batches.counts(0).heldout, 40);
    std::multiset<Segment> all;
    for (Index rank = 0; rank < world; ++rank) {
      const std::vector<Batch> dealt = batches.heldout(count, 2, rank);
      EXPECT_EQ(dealt.size(), batches.heldout(count, 2, 0).size());
      for (const Batch& batch : dealt)
        if (batch.sequences > 0)
          for (Segment& s : segments_of(batch)) all.insert(std::move(s));
    }
    return all;
  };
  const std::multiset<Segment> one = heldout(1, 3, 1000);
  EXPECT_EQ(heldout(4, 9, 1000), one);
  EXPECT_EQ(heldout(3, 3, 5), heldout(1, 3, 5));
  EXPECT_LT(heldout(1, 3, 5).size(), one.size());
  const ExampleBatches with({{&examples.file(), 1}},
                            {.batch = row_by_row().batch, .seed = 3, .heldout = 0.1});
  const ExampleBatches without = batches_of(examples, row_by_row());
  std::multiset<Segment> together = epoch_of(with, 0);
  together.insert(one.begin(), one.end());
  EXPECT_EQ(together, epoch_of(without, 0));
  EXPECT_TRUE(batches_of(examples, dealt(1)).heldout(5, 1, 0).empty());
}

TEST(ExampleBatches, TooLongExamplesFollowTheRule) {
  const MadeUpExamples examples({.examples = 60, .longest = 100});
  const auto counts = [&](TooLong rule) {
    return ExampleBatches({{&examples.file(), 1}}, {.batch = dealt(1).batch, .seed = 3, .too_long = rule})
        .counts(0);
  };
  const ExampleCounts cut = counts(TooLong::kCut), split = counts(TooLong::kSplit),
                      drop = counts(TooLong::kDrop);
  EXPECT_GT(cut.too_long, 20);
  EXPECT_EQ(split.too_long, cut.too_long);
  EXPECT_EQ(drop.too_long, cut.too_long);
  EXPECT_EQ(split.left_out, 0);
  EXPECT_GT(drop.left_out, cut.left_out);
  EXPECT_GT(split.pieces, cut.pieces);
  EXPECT_GT(split.targets, cut.targets) << "the second half of an example is learned";
}

/// For whoever reads a whole file, in its order or in another.
TEST(ExampleBatches, RowsOfAFileAreBuiltByThemselves) {
  const MadeUpExamples examples({.examples = 9, .longest = 8});
  const std::vector<Piece> pieces = pieces_of(examples.file());
  Batch batch;
  batch.sequence_length = kRowLength;
  std::vector<Segment> expected;
  for (Index i = 0; i < 9; ++i) expected.push_back(segment_of(examples.example(i)));
  for (std::size_t first = 0; first < 9; first += 3)
    append_row(examples.file(), std::span(pieces).subspan(first, 3), batch);
  EXPECT_EQ(batch.sequences, 3);
  EXPECT_EQ(segments_of(batch), expected);
  EXPECT_THROW(append_row(examples.file(), pieces, batch), ShapeError);
}

TEST(ExampleBatches, RefusesWhatCannotBeLearnedOrDealt) {
  const testing::TemporaryFolder folder;
  ExampleFileWriter writer(folder / "unlearned", "");
  for (int i = 0; i < 5; ++i) writer.add(Example{{1, 2, 3}, {1, 0, 0}});
  writer.finish();
  const ExampleFile unlearned(folder / "unlearned");
  ExampleFileWriter one(folder / "one", "");
  one.add(Example{{1, 2, 3}, {1, 1, 1}});
  one.finish();
  const ExampleFile single(folder / "one");
  const MadeUpExamples examples;
  const auto message = [&](const std::vector<ExampleSource>& sources, double heldout = 0) {
    return message_of<ConfigError>(
        [&] { ExampleBatches(sources, {.batch = dealt(1).batch, .heldout = heldout}); });
  };
  const std::string found = message({{&examples.file(), 1}, {&unlearned, 1}});
  EXPECT_NE(found.find("unlearned: none of its 5 examples to train on has a learned token"),
            std::string::npos)
      << found;
  EXPECT_NE(message({{&single, 1}}, 0.5).find("the held-out part holds no example"), std::string::npos);
  EXPECT_EQ(
      ExampleBatches({{&examples.file(), 1}}, {.batch = dealt(1).batch, .heldout = 0.001}).counts(0).heldout,
      1)
      << "of two and more examples at least one";
  EXPECT_NE(message({{&examples.file(), -1}}).find("weight"), std::string::npos);
  EXPECT_NE(message({}).find("sources"), std::string::npos);
  EXPECT_NE(message({{&examples.file(), 1}, {&single}}).find("of 2 sources 1 have a weight"),
            std::string::npos);
  EXPECT_THROW(batches_of(examples, dealt(5)), ShapeError);
}

}  // namespace
}  // namespace moeloom
