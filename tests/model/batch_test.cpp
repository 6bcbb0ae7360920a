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

}  // namespace
}  // namespace moeloom
