#include "record/metrics.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"

#include <cmath>
#include <limits>
#include <sys/stat.h>

#include "record/metrics_writer.hpp"
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
  metrics.layers = {{1.5, 0.25, 0.125, 2, 1.75, 0.0625}, {}};
  return metrics;
}

std::vector<Index> steps_in(const std::filesystem::path& path) {
  std::vector<Index> numbers;
  for (const StepMetrics& metrics : read_metrics(path)) numbers.push_back(metrics.step);
  return numbers;
}

TEST(Metrics, EveryLineHasTheKeysThatScriptsRelyOn) {
  const Document line = Document::parse(metrics_line(step(3)), "line");
  for (const char* key : {"step", "loss", "aux_loss", "grad_norm", "tokens_per_s", "seconds", "phases",
                          "message_bytes", "network_bytes", "row_bytes", "expert_load", "routing"})
    EXPECT_TRUE(line.has(key)) << key;
  EXPECT_EQ(line.number("loss"), step(3).loss);
  EXPECT_EQ(line.object("phases").number("experts"), 0.25);
  EXPECT_EQ(line.numbers("expert_load"), (std::vector<double>{1.5, 0}));
  const Document routing = line.object("routing");
  EXPECT_EQ(routing.numbers("load_cv"), (std::vector<double>{0.25, 0}));
  EXPECT_EQ(routing.numbers("load_gini"), (std::vector<double>{0.125, 0}));
  EXPECT_EQ(routing.numbers("dead_experts"), (std::vector<double>{2, 0}));
  EXPECT_EQ(routing.numbers("entropy"), (std::vector<double>{1.75, 0}));
  EXPECT_EQ(routing.numbers("dropped_share"), (std::vector<double>{0.0625, 0}));
  EXPECT_FALSE(line.has("collapse")) << "nothing began or ended";
  EXPECT_EQ(metrics_line(step(3)).find('\n'), std::string::npos);
}

TEST(Metrics, StartingSavingAndValidatingAreReadAsTheyWereWrittenAndLeftOutWhereThereWasNone) {
  const TemporaryFolder folder;
  StepMetrics first = step(1);
  first.start_seconds = 1.5, first.save_seconds = 0.25, first.eval_seconds = 0.5;
  write_bytes(folder.path() / "m", metrics_line(first) + "\n" + metrics_line(step(2)) + "\n");
  const std::vector<StepMetrics> steps = read_metrics(folder.path() / "m");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].start_seconds, 1.5);
  EXPECT_EQ(steps[0].save_seconds, 0.25);
  EXPECT_EQ(steps[0].eval_seconds, 0.5);
  EXPECT_EQ(steps[1].start_seconds, 0);
  EXPECT_EQ(metrics_line(step(2)).find("start_seconds"), std::string::npos);
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
                  .load_after = 1.25,
                  .uneven_ms = 3.5,
                  .saved_ms = 2.5};
  on.layers = {{}, {.max_over_mean = 2, .rank_load_before = 1.5, .saved_ms = 2.5, .replicas = 5}};
  MetricsWriter writer(folder / "m.jsonl", 0);
  writer.append(step(0));
  writer.append(on);
  const auto read = read_metrics(folder / "m.jsonl");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_FALSE(read[0].rebalance);
  ASSERT_TRUE(read[1].rebalance);
  EXPECT_EQ(metrics_line(read[1]), metrics_line(on));
  EXPECT_EQ(read[1].rebalance->no_room, 4);
  EXPECT_EQ(read[1].rebalance->saved_ms, 2.5);
  EXPECT_EQ(read[1].layers.at(1).rank_load_before, 1.5);
  EXPECT_EQ(read[1].layers.at(1).replicas, 5);
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

TEST(Metrics, ALineThatAKillCutShortIsDropped) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  write_bytes(path, metrics_line(step(0)) + "\n" + metrics_line(step(1)) + "\n" + R"({"step":2,"lo)");
  EXPECT_EQ(steps_in(path), (std::vector<Index>{0, 1}));
  MetricsWriter(path, 2).append(step(2));
  EXPECT_EQ(steps_in(path), (std::vector<Index>{0, 1, 2}));
}

TEST(Metrics, ALineWhoseStepNoRunHasIsDropped) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  write_bytes(path, metrics_line(step(std::numeric_limits<Index>::max())) + "\n" + metrics_line(step(-1)) +
                        "\n" + metrics_line(step(4)) + "\n");
  EXPECT_EQ(steps_in(path), std::vector<Index>{4});
}

TEST(Metrics, FiguresOfLayersAreShortAndComeBack) {
  const TemporaryFolder folder;
  StepMetrics odd = step(0);
  odd.layers[0] = {.load_cv = 1.0 / 3, .entropy = std::log(128.0), .dropped_share = 1e-9 / 3};
  EXPECT_NE(metrics_line(odd).find(R"("load_cv":[0.33333,0.0])"), std::string::npos) << metrics_line(odd);
  odd.collapse = {{.begins = true, .layer = 3, .expert = 7, .share_of_tokens = 0.75, .since = 0},
                  {.begins = false,
                   .layer = 1,
                   .sign = CollapseSign::kDeadExperts,
                   .expert = 2,
                   .dead_experts = 4,
                   .since = -5}};
  MetricsWriter(folder / "m.jsonl", 0).append(odd);
  const auto read = read_metrics(folder / "m.jsonl");
  ASSERT_EQ(read.size(), 1u);
  ASSERT_EQ(read[0].layers.size(), 2u);
  EXPECT_NEAR(read[0].layers[0].entropy, std::log(128.0), 1e-4);
  ASSERT_EQ(read[0].collapse.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const CollapseEvent& is = read[0].collapse[i];
    const CollapseEvent& was = odd.collapse[i];
    EXPECT_TRUE(is.begins == was.begins && is.step == 0 && is.layer == was.layer && is.expert == was.expert &&
                is.sign == was.sign && is.share_of_tokens == was.share_of_tokens &&
                is.dead_experts == was.dead_experts && is.since == was.since)
        << i;
  }
}

TEST(Metrics, ALineOfBeforeTheFiguresOfRoutingHasNanForThem) {
  const TemporaryFolder folder;
  write_bytes(folder / "m.jsonl", "{\"step\":0,\"expert_load\":[1.5,0.0]}\n{\"step\":1}\n");
  const auto read = read_metrics(folder / "m.jsonl");
  ASSERT_EQ(read.size(), 2u);
  ASSERT_EQ(read[0].layers.size(), 2u);
  EXPECT_EQ(read[0].layers[0].max_over_mean, 1.5);
  EXPECT_TRUE(std::isnan(read[0].layers[0].load_cv) && std::isnan(read[0].layers[0].dead_experts));
  EXPECT_TRUE(read[1].layers.empty());
}

TEST(Metrics, AFolderThatIsNotThereIsAnIoError) {
  const TemporaryFolder folder;
  EXPECT_THROW(MetricsWriter(folder / "no" / "m.jsonl", 0), IoError);
  EXPECT_TRUE(read_metrics(folder / "none.jsonl").empty());
}

TEST(Metrics, AreNotWaitedForWhereTheyAreAPipe) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "metrics.jsonl").c_str(), 0600), 0);
  EXPECT_THROW(read_metrics(folder / "metrics.jsonl"), IoError);
}

}  // namespace
}  // namespace moeloom
