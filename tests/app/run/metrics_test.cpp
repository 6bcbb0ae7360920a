#include "run/metrics.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"

#include <cmath>
#include <limits>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

StepMetrics step(Index number) {
  StepMetrics metrics;
  metrics.step = number;
  metrics.loss = 1.0 / 3 + static_cast<double>(number);
  metrics.seconds_by_phase = {{"experts", 0.25}};
  metrics.expert_load_max_over_mean = {1.5, 0};
  return metrics;
}

std::vector<Index> steps_in(const std::filesystem::path& path) {
  std::vector<Index> numbers;
  for (const StepMetrics& metrics : read_metrics(path)) numbers.push_back(metrics.step);
  return numbers;
}

TEST(Metrics, EveryLineHasTheKeysThatScriptsRelyOn) {
  const Document line = Document::parse(metrics_line(step(3)), "line");
  for (const char* key :
       {"step", "loss", "aux_loss", "grad_norm", "tokens_per_s", "seconds", "phases", "message_bytes",
        "network_bytes", "row_bytes", "pool_tasks", "pool_shared", "expert_load"})
    EXPECT_TRUE(line.has(key)) << key;
  EXPECT_EQ(line.number("loss"), step(3).loss);
  EXPECT_EQ(line.object("phases").number("experts"), 0.25);
  EXPECT_EQ(line.numbers("expert_load"), (std::vector<double>{1.5, 0}));
  EXPECT_EQ(metrics_line(step(3)).find('\n'), std::string::npos);
}

TEST(Metrics, RebalancingIsReadAsItWasWrittenAndLeftOutWhereItWasOff) {
  const TemporaryFolder folder;
  StepMetrics on = step(1);
  on.rebalance = {.made = 1,
                  .even = 2,
                  .does_not_pay = 3,
                  .no_room = 4,
                  .replicas = 5,
                  .rows_moved = 6,
                  .weight_bytes = 7,
                  .gradient_bytes = 8,
                  .load_before = 1.5,
                  .load_after = 1.25};
  MetricsWriter writer(folder / "m.jsonl", 0);
  writer.append(step(0));
  writer.append(on);
  const auto read = read_metrics(folder / "m.jsonl");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_FALSE(read[0].rebalance);
  ASSERT_TRUE(read[1].rebalance);
  EXPECT_EQ(metrics_line(read[1]), metrics_line(on));
  EXPECT_EQ(read[1].rebalance->no_room, 4);
}

TEST(Metrics, WhatIsNotFiniteIsNullAndComesBackAsNan) {
  const TemporaryFolder folder;
  StepMetrics bad = step(0);
  bad.loss = std::numeric_limits<double>::quiet_NaN();
  bad.grad_norm = std::numeric_limits<double>::infinity();
  bad.val_loss = bad.loss;
  bad.skipped = true;
  MetricsWriter(folder / "m.jsonl", 0).append(bad);
  const auto read = read_metrics(folder / "m.jsonl");
  ASSERT_EQ(read.size(), 1u);
  EXPECT_TRUE(std::isnan(read[0].loss) && std::isnan(read[0].grad_norm) &&
              std::isnan(read[0].val_loss.value()));
  EXPECT_TRUE(read[0].skipped);
  EXPECT_NE(read_bytes(folder / "m.jsonl").find("\"loss\":null"), std::string::npos);
}

TEST(Metrics, AResumedRunHasEveryStepOnce) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  for (const Index first : {0, 3, 5, 7, 0}) {
    MetricsWriter writer(path, first);
    for (Index number = first; number < first + 4; ++number) writer.append(step(number));
    std::vector<Index> expected;
    for (Index number = 0; number < first + 4; ++number) expected.push_back(number);
    EXPECT_EQ(steps_in(path), expected) << first;
    EXPECT_FALSE(std::filesystem::exists(path.string() + ".partial"));
  }
}

TEST(Metrics, ALineThatAKillCutShortIsDropped) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  write_bytes(path, metrics_line(step(0)) + "\n" + metrics_line(step(1)) + "\n" + R"({"step":2,"lo)");
  EXPECT_EQ(steps_in(path), (std::vector<Index>{0, 1}));
  MetricsWriter(path, 2).append(step(2));
  EXPECT_EQ(steps_in(path), (std::vector<Index>{0, 1, 2}));
}

TEST(Metrics, KeptLinesKeepTheirBytes) {
  const TemporaryFolder folder;
  const std::string line = R"({"step":0,"loss":1.25,"message_bytes":"of a later version","more":[1,2]})";
  write_bytes(folder / "m.jsonl", line + "\n");
  MetricsWriter(folder / "m.jsonl", 1).append(step(1));
  EXPECT_TRUE(read_bytes(folder / "m.jsonl").starts_with(line + "\n"));
}

TEST(Metrics, AFolderThatIsNotThereIsAnIoError) {
  const TemporaryFolder folder;
  EXPECT_THROW(MetricsWriter(folder / "no" / "m.jsonl", 0), IoError);
  EXPECT_TRUE(read_metrics(folder / "none.jsonl").empty());
}

TEST(Metrics, AFullDiskIsAnIoError) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("/dev/full", folder / "m.jsonl.partial");
  write_bytes(folder / "m.jsonl", metrics_line(step(0)) + "\n");
  EXPECT_THROW(MetricsWriter(folder / "m.jsonl", 1), IoError);
  EXPECT_EQ(steps_in(folder / "m.jsonl"), std::vector<Index>{0});
}

}  // namespace
}  // namespace moeloom
