// What cannot be had together, as decide() and who makes a state are told it.
#include "train/conflicts.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Conflicts, NothingIsSaidOfAnOrdinaryJob) {
  EXPECT_TRUE(conflicts({}, 0).empty());
  EXPECT_TRUE(conflicts({}, 5).empty()) << "slices alone";
}

TEST(Conflicts, ExactSumsNameAllThatAddsInAnOrderOfItsOwn) {
  Job job;
  job.batch.exact = 2;
  job.exchange.rebalance = true;
  EXPECT_TRUE(conflicts(job, 0).empty());
  job.exchange = {.combine = CombineMode::kFast, .wire = WireDType::kBf16};
  job.keeping.shard_dense = true;
  job.keeping.gradients = Storage::kBf16;
  const auto found = conflicts(job, 7);
  ASSERT_EQ(found.size(), 5u);
  for (const std::string& sentence : found) {
    EXPECT_TRUE(sentence.starts_with("exact sums = 2 cannot be had with ")) << sentence;
    EXPECT_TRUE(sentence.ends_with("; remove one")) << sentence;
  }
}

}  // namespace
}  // namespace moeloom
