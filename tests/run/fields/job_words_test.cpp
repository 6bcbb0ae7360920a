#include "fields/job_words.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(JobWords, AreWhatDiffersForTheCommandThatIsToldIt) {
  const Job before{.batch = {.sequences = 16, .length = 256},
                   .layout = {.mesh = {.dp = 4}, .ranks_per_node = 2}};
  EXPECT_EQ(changed_train_options(before, before), "");
  EXPECT_EQ(changed_plan_options(before, before), "");
  Job after = before;
  after.batch.micro_batches = 4;
  after.keeping = {.moments = MomentFormat::kInt8, .recompute = Recompute::kBlock, .offload = "/disk"};
  after.layout.mesh = {.dp = 2, .ep = 2};
  after.exchange.dispatcher = DispatcherKind::kShared;
  const std::string kept = " `moments` int8 `recompute` block `offload` /disk";
  EXPECT_EQ(changed_keeping(before.keeping, after.keeping), kept);
  EXPECT_EQ(changed_train_options(before, after), "`accumulate` 4" + kept + " `ep` 2 `dispatcher` shared");
  EXPECT_EQ(changed_plan_options(before, after), "`accumulate` 4" + kept) << "mesh and exchange are its own";
  after.layout.mesh = {.dp = 8};
  after.layout.ranks_per_node = 1;
  after.keeping = {};
  EXPECT_EQ(changed_plan_options(before, after),
            "`ranks` 8 `ranks-per-node` 1 `tokens-per-rank` 512 `accumulate` 4");
}

}  // namespace
}  // namespace moeloom
