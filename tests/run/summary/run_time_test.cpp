#include "summary/run_time.hpp"

#include <limits>

#include "summary/restart_report.hpp"
#include "support/files.hpp"
#include "support/sections.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::has_row;
using testing::TemporaryFolder;
using testing::write_bytes;

constexpr const char* kTwo =
    R"({"started":1000.5,"ended":1010.5,"exit_code":137,"reason":"rank 1 on h0 ended","rank":1,"host":"h0","steps":9,"from":6,"lost_seconds":3.5,"lost_starting":0.25,"lost_saving":0.125,"pause":0}
{"started":1012,"ended":1020,"exit_code":205,"reason":"no answer from <b>","steps":12,"from":12,"lost_seconds":0.000,"pause":1}
)";

TEST(RunTime, RestartsAreReadAndWhatIsNoneIsPassedOver) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "restarts.jsonl";
  EXPECT_TRUE(read_restarts(path).empty());
  write_bytes(path,
              "\n{}\n[1]\nnull\n{\"started\":\"x\",\"ended\":1}\n" + std::string(kTwo) + "{\"started\":1");
  const std::vector<Restart> restarts = read_restarts(path);
  ASSERT_EQ(restarts.size(), 2u);
  EXPECT_EQ(restarts[0].rank, 1);
  EXPECT_EQ(restarts[0].host, "h0");
  EXPECT_EQ(restarts[0].steps, 9);
  EXPECT_EQ(restarts[0].from, 6);
  EXPECT_EQ(restarts[0].lost_seconds, 3.5);
  EXPECT_FALSE(restarts[1].rank);
  EXPECT_TRUE(read_restarts(folder.path()).empty()) << "a folder";
}

TEST(RunTime, EverySecondFromTheFirstStartIsOfOneUse) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "r", kTwo);
  std::vector<StepMetrics> steps(4);
  for (StepMetrics& step : steps) step.seconds = 2;
  steps[0].start_seconds = 1;
  steps[2].save_seconds = 0.5;
  steps[3].seconds = std::numeric_limits<double>::quiet_NaN();
  const TimeUse use = time_use(steps, read_restarts(folder.path() / "r"), 1023, 1040.5, 0.25);
  EXPECT_DOUBLE_EQ(use.wall, 40);
  EXPECT_DOUBLE_EQ(use.trained, 6);
  EXPECT_DOUBLE_EQ(use.again, 3.5);
  EXPECT_DOUBLE_EQ(use.starting, 1.25);
  EXPECT_DOUBLE_EQ(use.saving, 0.875);
  EXPECT_DOUBLE_EQ(use.away, 1.5 + 3);
  EXPECT_EQ(use.restarts, 2);
  EXPECT_DOUBLE_EQ(use.share(), 0.15);
  EXPECT_DOUBLE_EQ(use.rest(), 40 - 6 - 3.5 - 1.25 - 0.875 - 4.5);
  EXPECT_DOUBLE_EQ(time_use(steps, {}, 1023, 1043, 0).wall, 20) << "nobody started it again";
  EXPECT_EQ(time_use({}, {}, 5, 5, 0).share(), 0);
}

TEST(RunTime, WhatCameBeforeTheFirstRecordedStartIsNotCounted) {
  std::vector<StepMetrics> steps(10);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].step = static_cast<Index>(i);
    steps[i].seconds = steps[i].start_seconds = 4;
  }
  const TemporaryFolder folder;
  write_bytes(folder.path() / "r",
              "{\"started\":1000,\"ended\":1010,\"exit_code\":75,\"resumed\":7}\n"
              "{\"started\":1012,\"ended\":1020,\"exit_code\":137,\"resumed\":8}\n");
  const TimeUse use = time_use(steps, read_restarts(folder.path() / "r"), 1021, 1040, 0);
  EXPECT_DOUBLE_EQ(use.wall, 40);
  EXPECT_DOUBLE_EQ(use.trained, 12);
  EXPECT_DOUBLE_EQ(use.starting, 12);
  EXPECT_LE(use.share(), 1);
  EXPECT_EQ(use.restarts, 1) << "who is asked to stop is not started again";
}

TEST(RunTime, ThisProcessStartedBeforeNow) {
  const double started = process_start();
  EXPECT_LE(started, wall_clock() + 0.02);  // a tick of /proc
  EXPECT_GT(started, wall_clock() - 3600);
  EXPECT_NEAR(started, process_start(), 0.1) << "the same at every call";
}

TEST(RunTime, TheTableShowsEachRestartWithItsReason) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "r", kTwo);
  const std::vector<Restart> restarts = read_restarts(folder.path() / "r");
  const Table table = restarts_section(restarts).table;
  EXPECT_EQ(table.rows.size(), 2u);
  EXPECT_TRUE(has_row(table, {"1", "9 steps", "rank 1 on h0 ended", "step 6", "3 steps, 3.5 s"}));
  EXPECT_TRUE(has_row(table, {"2", "12 steps", "no answer from <b>", "step 12", "0 steps, 0 ms"}));
  EXPECT_TRUE(restarts_section({}).is_empty());
  const Section many = restarts_section(std::vector<Restart>(250));
  EXPECT_EQ(many.table.rows.size(), 100u);
  EXPECT_NE(many.note.find("the last 100 of 250"), std::string::npos);
  EXPECT_TRUE(time_section(std::nullopt).is_empty());
  EXPECT_EQ(time_section(time_use({}, restarts, 1023, 1040.5, 0)).table.rows.size(), 7u);
}

}  // namespace
}  // namespace moeloom
