#include "train/packing.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::vector<Piece> pieces_of(const std::vector<std::uint32_t>& lengths) {
  std::vector<Piece> pieces;
  for (const std::uint32_t length : lengths)
    pieces.push_back({static_cast<std::uint32_t>(pieces.size()), 0, length, length - 1});
  return pieces;
}

/// e^(normal): turns of conversations, a few long among many short.
std::vector<Piece> chats(std::uint64_t tokens, double median, double spread, Index longest) {
  const CounterRandom random(11, stream_of("chats"));
  std::vector<std::uint32_t> lengths;
  for (std::uint64_t i = 0, sum = 0; sum < tokens; sum += lengths.back(), ++i) {
    const double drawn = median * std::exp(spread * random.normal(i));
    lengths.push_back(static_cast<std::uint32_t>(std::clamp(drawn, 4.0, static_cast<double>(longest))));
  }
  return pieces_of(lengths);
}

std::vector<Piece> all_pieces(const PackedRows& rows, Index epoch) {
  std::vector<Piece> all;
  for (Index r = 0; r < rows.rows(); ++r) std::ranges::copy(rows.row(r, epoch), std::back_inserter(all));
  std::ranges::sort(all, {}, [](const Piece& p) { return std::pair(p.example, p.begin); });
  return all;
}

Index tokens_of(const std::vector<Piece>& row) {
  return std::accumulate(row.begin(), row.end(), Index{0},
                         [](Index sum, const Piece& p) { return sum + p.length; });
}

TEST(Packing, PutsEveryPieceIntoOneRowThatHoldsIt) {
  for (const Index length : {7, 64, 1000}) {
    const std::vector<Piece> pieces = chats(20000, 5, 1, length);
    const PackedRows rows(pieces, length, 3);
    for (const Index epoch : {0, 1, 1000000}) EXPECT_EQ(all_pieces(rows, epoch), pieces);
    for (Index r = 0; r < rows.rows(); ++r) {
      EXPECT_GE(tokens_of(rows.row(r)), 1);
      EXPECT_LE(tokens_of(rows.row(r)), length);
    }
  }
}

/// Whatever fits best first: 6 + 4, 5 + 5, 3 + 3 + 2 + 1 of rows of 10; and a piece of 2 goes to the row with
/// room for 2, not for 5.
TEST(Packing, FillsTheRowWithTheLeastRoom) {
  const auto rows_of = [](const std::vector<std::uint32_t>& lengths) {
    const PackedRows packed(pieces_of(lengths), 10, 1);
    std::vector<std::vector<std::uint32_t>> rows;
    for (Index r = 0; r < packed.rows(); ++r) {
      rows.emplace_back();
      for (const Piece& piece : packed.row(r)) rows.back().push_back(piece.length);
    }
    std::ranges::sort(rows);
    return rows;
  };
  using Rows = std::vector<std::vector<std::uint32_t>>;
  EXPECT_EQ(rows_of({3, 5, 1, 4, 6, 2, 5, 3}), (Rows{{3, 3, 2, 1}, {5, 5}, {6, 4}}));
  EXPECT_EQ(rows_of({5, 8, 2}), (Rows{{5}, {8, 2}}));
  EXPECT_EQ(rows_of({10, 10, 1}), (Rows{{1}, {10}, {10}}));
  EXPECT_EQ(rows_of({}), Rows{});
}

TEST(Packing, UsesNinetyEightOfAHundredPositionsOfShortChats) {
  for (const Index length : {1024, 2048, 4096})
    for (const double median : {60.0, 180.0, 350.0}) {
      const PackedRows rows(chats(2000000, median, 0.8, length), length, 3);
      EXPECT_GT(rows.used_share(), 0.98) << "median " << median << " in rows of " << length;
      double used = 0;
      for (Index r = 0; r < rows.rows(); ++r) used += static_cast<double>(tokens_of(rows.row(r)));
      EXPECT_DOUBLE_EQ(rows.used_share(), used / static_cast<double>(rows.rows() * length));
    }
}

TEST(Packing, DependsOnSeedAndEpochAndNothingElse) {
  const std::vector<Piece> pieces = chats(30000, 30, 0.7, 256);
  const auto flat = [&](std::uint64_t seed, Index epoch) {
    const PackedRows rows(pieces, 256, seed);
    std::vector<std::uint32_t> examples;
    for (Index r = 0; r < rows.rows(); ++r) {
      for (const Piece& piece : rows.row(r, epoch)) examples.push_back(piece.example);
      examples.push_back(UINT32_MAX);
    }
    return examples;
  };
  const auto first = flat(3, 0);
  EXPECT_EQ(flat(3, 0), first);
  EXPECT_NE(flat(4, 0), first);
  EXPECT_NE(flat(3, 1), first);
  EXPECT_EQ(flat(3, 1).size(), first.size()) << "every epoch has as many rows";
}

/// Best fit leaves the last rows least full, and they must come anywhere.
TEST(Packing, RowsComeInAnyOrder) {
  const PackedRows rows(chats(400000, 30, 0.7, 256), 256, 3);
  const auto pieces_in = [&](Index begin, Index end) {
    double sum = 0;
    for (Index r = begin; r < end; ++r) sum += static_cast<double>(rows.row(r).size());
    return sum / static_cast<double>(end - begin);
  };
  const Index half = rows.rows() / 2;
  EXPECT_NEAR(pieces_in(0, half) / pieces_in(half, rows.rows()), 1, 0.1);
}

TEST(Packing, TooLongExamplesFollowTheirRule) {
  const std::vector<Piece> pieces = pieces_of({4, 11, 5, 10});
  const FittedPieces cut = fit_to_length(pieces, 5, TooLong::kCut);
  EXPECT_EQ(cut.pieces, (std::vector<Piece>{{0, 0, 4, 3}, {1, 0, 5, 0}, {2, 0, 5, 4}, {3, 0, 5, 0}}));
  EXPECT_EQ(cut.left_out, 11);
  const FittedPieces split = fit_to_length(pieces, 5, TooLong::kSplit);
  EXPECT_EQ(split.pieces, (std::vector<Piece>{{0, 0, 4, 3},
                                              {1, 0, 5, 0},
                                              {1, 5, 5, 0},
                                              {1, 10, 1, 0},
                                              {2, 0, 5, 4},
                                              {3, 0, 5, 0},
                                              {3, 5, 5, 0}}));
  EXPECT_EQ(split.left_out, 0);
  const FittedPieces drop = fit_to_length(pieces, 5, TooLong::kDrop);
  EXPECT_EQ(drop.pieces, (std::vector<Piece>{{0, 0, 4, 3}, {2, 0, 5, 4}}));
  EXPECT_EQ(drop.left_out, 21);
  for (const FittedPieces* const fitted : {&cut, &split, &drop}) EXPECT_EQ(fitted->too_long, 2);
}

TEST(Packing, RefusesWhatFitsIntoNoRow) {
  EXPECT_THROW(PackedRows(pieces_of({3, 11}), 10, 1), ShapeError);
  EXPECT_THROW(PackedRows({{{0, 0, 0, 0}}}, 10, 1), ShapeError);
  EXPECT_THROW(fit_to_length(pieces_of({3}), 0, TooLong::kCut), ShapeError);
  EXPECT_THROW(PackedRows(pieces_of({3}), 10, 1).row(1), ShapeError);
}

/// An epoch has nothing to be made when it begins: its first row takes no longer than one of an epoch under
/// way. A hundred rows are 1/1000 of an epoch.
TEST(Packing, AnEpochBeginsWithoutWork) {
  const PackedRows rows(chats(20000000, 60, 0.8, 256), 256, 3);
  ASSERT_GT(rows.rows(), 50000);
  const auto seconds = [&](Index first_epoch, Index epochs_apart) {
    Index tokens = 0;
    const std::clock_t start = std::clock();
    for (Index i = 0; i < 100; ++i) tokens += tokens_of(rows.row(i, first_epoch + i * epochs_apart));
    EXPECT_GT(tokens, 0);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  const double one_epoch = seconds(0, 0), hundred_epochs = seconds(1, 1);
  EXPECT_LT(hundred_epochs, 20 * one_epoch + 0.005);
}

TEST(Packing, SaysWhatItHolds) {
  const std::vector<Piece> pieces = chats(2000000, 60, 0.8, 256);
  const PackedRows rows(pieces, 256, 3);
  EXPECT_EQ(rows.bytes(), std::ssize(pieces) * 20 + (257 + rows.rows() + 1) * 8);
}

/// Ten times as many examples take about ten times as long: an order of N^2 would take a hundred times.
TEST(Packing, TakesTimeInProportionToTheExamples) {
  const auto seconds = [](std::uint64_t tokens) {
    const std::vector<Piece> pieces = chats(tokens, 60, 0.8, 4096);
    const std::clock_t start = std::clock();
    const PackedRows rows(pieces, 4096, 3);
    EXPECT_GT(rows.rows(), 0);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  const double few = seconds(1000000), many = seconds(10000000);
  EXPECT_LT(many, 40 * few + 0.1);
}

}  // namespace
}  // namespace moeloom
