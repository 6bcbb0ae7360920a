#include "summary/run_data.hpp"

#include <cmath>
#include <limits>

#include "support/sections.hpp"

namespace moeloom {
namespace {

using testing::has_row;

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

using Values = std::vector<double>;
using Texts = std::vector<std::string>;

RunRecord drawn_run(Index count) {
  RunRecord run{.name = "a run", .steps = std::vector<StepMetrics>(static_cast<std::size_t>(count))};
  for (Index i = 0; i < count; ++i) {
    StepMetrics& step = run.steps[static_cast<std::size_t>(i)];
    step.step = i;
    step.loss = 1 + static_cast<double>(i % 4);
    step.grad_norm = 1;
    step.tokens_seen = 1'000'000'007 * (i + 1);
    step.seconds = 1800;
    step.seconds_by_phase = {{"experts", 3}, {"attention", 1}};
    if (i % 10 == 9) step.val_loss = 2.5;
    step.layers = {{},
                   {.max_over_mean = 3.3,
                    .load_cv = 1.1,
                    .load_gini = 0.6,
                    .dead_experts = 2,
                    .entropy = 1.2,
                    .dropped_share = 0.05}};
  }
  return run;
}

Document drawn(const RunRecord& run) {
  return drawn_of({run}).objects("runs").at(0);
}

TEST(RunData, HasAColumnForEachLineThatSaysSomething) {
  const Document lines = drawn(drawn_run(20)).object("lines");
  EXPECT_EQ(lines.keys(), (Texts{"step", "tokens", "hours", "loss", "val_loss", "grad_norm"}));
  for (const std::string& key : lines.keys()) EXPECT_EQ(lines.numbers_or_nan(key).size(), 20u) << key;
  EXPECT_EQ(lines.numbers("hours").back(), 10);
  EXPECT_EQ(lines.numbers("tokens").back(), 20.0 * 1'000'000'007) << "with all digits";
  const Values validation = lines.numbers_or_nan("val_loss");
  EXPECT_TRUE(std::isnan(validation[8]) && validation[9] == 2.5);
}

TEST(RunData, OfManyStepsHasTheLeastAndTheLargestToo) {
  RunRecord run = drawn_run(10'000);
  run.steps[4321].loss = 99;
  const Document lines = drawn(run).object("lines");
  EXPECT_EQ(std::ranges::max(lines.numbers("loss_largest")), 99);
  EXPECT_EQ(lines.numbers("loss_least"), Values(1500, 1));
  EXPECT_EQ(lines.numbers("step").back(), 9999);
  EXPECT_EQ(lines.numbers("step").size(), 1500u);
  EXPECT_EQ(drawn(run).object("maps").numbers("step").size(), 240u);
}

TEST(RunData, HasAMapForEachFigureOfLayersWithGapsWhereNothingIsKnown) {
  RunRecord run = drawn_run(10);
  run.steps[3].layers[1] = {};
  const Document maps = drawn(run).object("maps");
  const std::vector<std::pair<std::string, double>> figures = {
      {"max_over_mean", 3.3}, {"entropy", 1.2}, {"dead_experts", 2},
      {"load_gini", 0.6},     {"load_cv", 1.1}, {"dropped_share", 0.05}};
  for (const auto& [key, value] : figures) {
    const std::vector<Document> layers = maps.objects(key);
    ASSERT_EQ(layers.size(), 2u) << key;
    const Values dense = layers[0].numbers_or_nan("values"), sparse = layers[1].numbers_or_nan("values");
    EXPECT_TRUE(std::isnan(dense[0])) << key;
    EXPECT_TRUE(sparse[2] == value && std::isnan(sparse[3])) << key << ": a step without rows is a gap";
  }
}

TEST(RunData, LeavesOutMapsOfWhatWasNotMeasuredOrNeverHappened) {
  RunRecord run = drawn_run(3);
  const auto maps = [&] { return drawn(run).object("maps").keys(); };
  for (StepMetrics& step : run.steps) step.layers[1] = {.max_over_mean = 1};
  EXPECT_EQ(maps(), (Texts{"max_over_mean", "step"})) << "balanced, nothing dropped, no entropy";
  for (StepMetrics& step : run.steps) step.layers[1] = {1.5, kGap, kGap, kGap, kGap, kGap};
  EXPECT_EQ(maps(), (Texts{"max_over_mean", "step"})) << "metrics of before these figures";
  for (StepMetrics& step : run.steps) step.layers = {{}, {}};
  EXPECT_EQ(maps(), Texts{}) << "a dense model";
}

TEST(RunData, OfAMapTheWorstOfEachStretchIsSeen) {
  RunRecord run = drawn_run(5'000);
  run.steps[1234].layers[1].max_over_mean = 9;
  run.steps[4000].layers[1].entropy = 0.1;
  const Document maps = drawn(run).object("maps");
  const auto values = [&](const char* key) { return maps.objects(key).at(1).numbers("values"); };
  EXPECT_EQ(std::ranges::max(values("max_over_mean")), 9);
  EXPECT_EQ(std::ranges::min(values("entropy")), 0.1);
}

TEST(RunData, TellsOfRestartsCollapsesPhasesAndTheLastRows) {
  RunRecord run = drawn_run(10);
  run.restarts = {{.reason = "rank 1 ended", .steps = 7, .from = 5}};
  run.steps[2].collapse = {{.begins = true, .step = 2, .layer = 1, .since = 2}};
  run.last_rows = {{}, {0, 0, 0, 7}};
  const Document object = drawn(run);
  EXPECT_EQ(object.objects("restarts").at(0).text("text"), "restart 1, from step 5: rank 1 ended");
  EXPECT_EQ(object.objects("restarts").at(0).integer("step"), 7);
  EXPECT_EQ(object.objects("collapses").at(0).integer("to"), 9) << "to the last step";
  EXPECT_DOUBLE_EQ(object.object("phases").number("experts"), 3);
  EXPECT_EQ(object.objects("last_rows").at(1).integers("values"), (std::vector<Index>{0, 0, 0, 7}));
}

TEST(RunData, TheTableOfStepsHasARowForEachLine) {
  RunRecord run = drawn_run(8);
  run.steps[7].loss = kGap;
  const Table table = steps_section({run}).table;
  EXPECT_TRUE(has_row(table, {"training loss", "1", "2.5", "2.5", "2.5", "3", "1", "4"}));
  EXPECT_TRUE(has_row(steps_section({run, run}).table,
                      {"training loss, a run", "1", "2.5", "2.5", "2.5", "3", "1", "4"}));
  EXPECT_EQ(table.rows.size(), 2u) << "and the gradient norm";
  EXPECT_TRUE(steps_section({drawn_run(0)}).is_empty());
}

TEST(RunData, TheTableOfLayersHasMeansAndTheWorst) {
  RunRecord run = drawn_run(4);
  run.steps[0].layers[1].max_over_mean = 4.1;
  run.steps[0].layers[1].entropy = 0.8;
  const Table table = layers_section(run).table;
  EXPECT_TRUE(has_row(
      table, {"1", "3.5", "4.1", "1.1", "0.8", "2", "2", "0.6", "0.6", "1.1", "1.1", "0.05", "0.05"}));
  EXPECT_EQ(table.rows.at(0).at(1), "–") << "a dense layer";
  EXPECT_TRUE(layers_section(drawn_run(0)).is_empty());
}

TEST(RunData, ThePhasesOfRunsStandSideBySide) {
  RunRecord other = drawn_run(2);
  for (StepMetrics& step : other.steps) step.seconds_by_phase = {{"reduce", 12}};
  const Table table = phase_section({drawn_run(3), other}).table;
  EXPECT_EQ(table.heading, (Texts{"", "a run", "share", "a run", "share"}));
  EXPECT_EQ(table.rows, (std::vector<Texts>{{"reduce", "0 ms", "0.0 %", "12 s", "100.0 %"},
                                            {"experts", "3 s", "75.0 %", "0 ms", "0.0 %"},
                                            {"attention", "1 s", "25.0 %", "0 ms", "0.0 %"},
                                            {"whole step", "4 s", "100.0 %", "12 s", "100.0 %"}}));
  EXPECT_TRUE(phase_section({drawn_run(0)}).is_empty());
}

}  // namespace
}  // namespace moeloom
