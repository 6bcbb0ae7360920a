#include "summary/run_time.hpp"

#include <limits>

#include "summary/restart_report.hpp"
#include "support/count_of.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::count_of;
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

TEST(RunTime, TheTableAndTheMarksShowEachRestartWithItsReason) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "r", kTwo);
  const std::vector<Restart> restarts = read_restarts(folder.path() / "r");
  const std::string table = restarts_table(restarts);
  EXPECT_EQ(count_of(table, "<tr>"), 3u);
  EXPECT_EQ(count_of(table, "<td>3 steps, 3.5 s</td>"), 1u) << table;
  EXPECT_EQ(count_of(table, "no answer from &lt;b&gt;"), 1u) << table;
  const std::vector<Mark> marks = restart_marks(restarts);
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].x, 9);
  EXPECT_EQ(marks[1].name, "2");
  EXPECT_NE(marks[0].text.find("rank 1 on h0 ended"), std::string::npos);
  EXPECT_TRUE(restarts_table({}).empty());
  EXPECT_EQ(count_of(restarts_table(std::vector<Restart>(250)), "<tr>"), 101u);
  EXPECT_NE(restarts_note(std::vector<Restart>(250)).find("the last 100 of 250"), std::string::npos);
  EXPECT_TRUE(time_table(std::nullopt).empty());
  EXPECT_EQ(count_of(time_table(time_use({}, restarts, 1023, 1040.5, 0)), "<tr"), 8u);
}

}  // namespace
}  // namespace moeloom
