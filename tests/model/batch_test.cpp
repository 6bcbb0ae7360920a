#include "moeloom/model/batch.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Batch, CountsTheTargetsThatAreNotIgnored) {
  Batch batch;
  EXPECT_EQ(batch.tokens(), 0);
  EXPECT_EQ(batch.counted_targets(), 0);
  batch.sequences = 2;
  batch.sequence_length = 3;
  batch.targets = {0, kIgnored, 7, kIgnored, kIgnored, 1};
  EXPECT_EQ(batch.tokens(), 6);
  EXPECT_EQ(batch.counted_targets(), 3);
}

TEST(Batch, SegmentsCoverItsTokensAndLieInOneSequenceEach) {
  Batch batch;
  batch.sequences = 2;
  batch.sequence_length = 3;
  const auto check = [&](std::vector<Index> offsets) {
    batch.segment_offsets = std::move(offsets);
    check_segments(batch);
  };
  EXPECT_NO_THROW(check({}));
  EXPECT_NO_THROW(check({0, 3, 6}));
  EXPECT_NO_THROW(check({0, 1, 3, 5, 6}));
  EXPECT_THROW(check({0, 2, 5, 6}), ShapeError) << "one from 2 to 5 lies in both";
  EXPECT_THROW(check({0, 6}), ShapeError);
  EXPECT_THROW(check({1, 3, 6}), ShapeError);
  EXPECT_THROW(check({0, 3, 5}), ShapeError);
  EXPECT_THROW(check({0, 3, 3, 6}), ShapeError);
  EXPECT_THROW(check({0, 3, 2, 6}), ShapeError);
}

TEST(Batch, PaddingLiesAtTheSidesAndAtTheLeftIsASegmentOfItsOwn) {
  Batch batch{.sequences = 2, .sequence_length = 4};
  const auto segments = [&](std::vector<std::uint8_t> is_real, std::vector<Index> offsets = {}) {
    batch.is_real = std::move(is_real);
    batch.segment_offsets = std::move(offsets);
    check_segments(batch);
    return segments_behind_padding(batch);
  };
  using Offsets = std::vector<Index>;
  EXPECT_EQ(segments({}), Offsets());
  EXPECT_EQ(segments({1, 1, 1, 0, 0, 0, 0, 0}), Offsets());
  EXPECT_EQ(segments({0, 1, 1, 0, 1, 1, 1, 1}), Offsets({0, 1, 4, 8}));
  EXPECT_EQ(segments({1, 0, 0, 1, 1, 1, 0, 0}, {0, 2, 4, 6, 8}), Offsets({0, 2, 3, 4, 6, 8}));
  EXPECT_EQ(segments({1, 1, 1, 0, 1, 1, 1, 1}, {0, 2, 4, 8}), Offsets({0, 2, 4, 8}));
  EXPECT_THROW(segments({1, 0, 1, 1, 1, 1, 1, 1}), ShapeError);
  EXPECT_THROW(segments({1, 1, 1, 1, 1, 1, 1}), ShapeError);
}

}  // namespace
}  // namespace moeloom
