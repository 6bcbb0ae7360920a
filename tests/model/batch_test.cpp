#include "moeloom/model/batch.hpp"

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

}  // namespace
}  // namespace moeloom
