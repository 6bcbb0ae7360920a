#include "moeloom/job/job.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Job, ARanksShareIsOfSequences) {
  const Job job{.batch = {.sequences = 24, .length = 16, .micro_batches = 3},
                .layout = {.mesh = {.dp = 2, .ep = 2}}};
  EXPECT_EQ(job.sequences(), 2);
  EXPECT_EQ(job.tokens(), 32);
  EXPECT_EQ(job.batch.tokens(), 24 * 16);
}

TEST(BatchShape, ExactMicroBatchesAreTheSameOnEveryMesh) {
  BatchShape batch{.sequences = 12, .length = 1, .micro_batches = 3};
  EXPECT_EQ(batch.first_sequence(1, 1, 2), 8) << "the second of rank 1's three";
  batch.exact = 1;
  EXPECT_EQ(batch.first_sequence(1, 1, 2), 6) << "rank 1's half of the second micro-batch";
  for (const Index world : {1, 2, 4}) EXPECT_EQ(batch.first_sequence(2, 0, world), 8) << world;
}

}  // namespace
}  // namespace moeloom
