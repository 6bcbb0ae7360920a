#include "summary/run_report.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TrainerState after(Index steps) {
  TrainerState state;
  state.step = steps;
  state.global_batch = 8;
  state.sequence_length = 16;
  return state;
}

StepMetrics metrics_of(Index step, Index tokens_seen) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.tokens_seen = tokens_seen;
  return metrics;
}

TEST(TokensBefore, AreThoseOfTheEarlierMetrics) {
  EXPECT_EQ(tokens_before({metrics_of(0, 64), metrics_of(1, 192)}, after(2)), 192);
}

TEST(TokensBefore, AreCountedFromTheStateWhereMetricsAreMissing) {
  EXPECT_EQ(tokens_before({}, after(3)), 3 * 8 * 16);
  EXPECT_EQ(tokens_before({metrics_of(0, 64)}, after(3)), 3 * 8 * 16) << "a step is missing";
  EXPECT_EQ(tokens_before({}, after(0)), 0);
}

/// Of packed conversations the rest of a row is padding, which no line of the metrics counts either.
TEST(TokensBefore, AreWithoutPaddingWhereTheStateRecordsThem) {
  TrainerState state = after(3);
  state.settings.set("tokens_seen", Index{300});
  EXPECT_EQ(tokens_before({}, state), 300);
  EXPECT_EQ(tokens_before({metrics_of(2, 301)}, state), 301);
}

TEST(MeasureStep, TakesEachNumberOfARankToItsPlace) {
  StepReport report;
  report.step = 7;
  report.lm_loss = 3.5;
  report.tokens = 128;
  report.seconds = 0.5;
  report.message_bytes = (Index{1} << 40) + 1;
  report.dispatch = {11, 12};
  report.row_slices = 5;
  report.rebalance = {{}, {.verdicts = {3, 4, 5, 5}, .saved_nanoseconds = 1'000'000}};
  report.rebalance[0] = {.verdicts = {0, 0, 0, 1},
                         .rows = 100,
                         .padded_rows_before = 180,
                         .padded_rows_after = 110,
                         .replicas = 31,
                         .rows_moved = 32,
                         .weight_bytes = 33,
                         .gradient_bytes = 34,
                         .uneven_nanoseconds = 3'000'000,
                         .saved_nanoseconds = 2'000'000};
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    report.phase_seconds[phase] = 0.25 * static_cast<double>(phase);
  const auto [metrics, signal, save_due, parts_done, row_slices] =
      measure_step(report, 64, {.memory_bytes = 21, .signal = 15, .save_due = true}, Communicator::self());
  EXPECT_TRUE(save_due);
  EXPECT_FALSE(parts_done);
  EXPECT_EQ(signal, 15);
  EXPECT_EQ(row_slices, 5);
  EXPECT_EQ(metrics.step, 7);
  EXPECT_EQ(metrics.loss, 3.5);
  EXPECT_EQ(metrics.seconds, 0.5);
  EXPECT_EQ(metrics.tokens_per_s, 256);
  EXPECT_EQ(metrics.tokens_seen, 192);
  EXPECT_EQ(metrics.message_bytes, (Index{1} << 40) + 1);
  EXPECT_EQ(metrics.rss_bytes, 21);
  EXPECT_EQ(metrics.network_bytes, 11);
  EXPECT_EQ(metrics.row_bytes, 12);
  ASSERT_TRUE(metrics.rebalance);
  EXPECT_EQ(metrics.rebalance->even, 3);
  EXPECT_EQ(metrics.rebalance->does_not_pay, 4);
  EXPECT_EQ(metrics.rebalance->no_room, 5);
  EXPECT_EQ(metrics.rebalance->made, 6);
  EXPECT_EQ(metrics.rebalance->replicas, 31);
  EXPECT_EQ(metrics.rebalance->rows_moved, 32);
  EXPECT_EQ(metrics.rebalance->weight_bytes, 33);
  EXPECT_EQ(metrics.rebalance->gradient_bytes, 34);
  EXPECT_EQ(metrics.rebalance->load_before, 1.8);
  EXPECT_EQ(metrics.rebalance->load_after, 1.1);
  EXPECT_DOUBLE_EQ(metrics.rebalance->uneven_ms, 3);
  EXPECT_DOUBLE_EQ(metrics.rebalance->saved_ms, 3);
  ASSERT_EQ(metrics.layers.size(), 2u);
  EXPECT_EQ(metrics.layers[0].rank_load_before, 1.8);
  EXPECT_EQ(metrics.layers[0].rank_load_after, 1.1);
  EXPECT_DOUBLE_EQ(metrics.layers[0].uneven_ms, 3);
  EXPECT_EQ(metrics.layers[0].replicas, 31);
  EXPECT_DOUBLE_EQ(metrics.layers[1].saved_ms, 1);
  ASSERT_EQ(metrics.seconds_by_phase.size(), kPhases);
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    EXPECT_EQ(metrics.seconds_by_phase.at(std::string(name_of(static_cast<Phase>(phase)))),
              report.phase_seconds[phase]);
}

TEST(LayerMetrics, AreZeroForALayerWithoutRows) {
  const auto layers =
      layer_metrics({{}, {0, 0}, {3, 1, 0, 0}}, {{}, {}, {.entropy = 0.5, .dropped_share = 0.25}});
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(layers[0].max_over_mean + layers[1].max_over_mean + layers[1].dead_experts, 0);
  EXPECT_EQ(layers[2].max_over_mean, 3);
  EXPECT_EQ(layers[2].dead_experts, 2);
  EXPECT_EQ(layers[2].load_gini, 0.625);
  EXPECT_EQ(layers[2].entropy, 0.5);
  EXPECT_EQ(layers[2].dropped_share, 0.25);
  EXPECT_EQ(layer_metrics({{3, 1}}, {}).at(0).entropy, 0) << "nobody told of the router";
}

TEST(StepEvent, SaysTheLoadOfTheMostUnevenLayer) {
  StepMetrics metrics;
  EXPECT_EQ(step_event(metrics, 0).text().find("expert_load"), std::string::npos) << "a dense model";
  metrics.layers = {{}, {.max_over_mean = 1.25}, {.max_over_mean = 2.5}, {.max_over_mean = 2}};
  EXPECT_NE(step_event(metrics, 0).text().find(" expert_load=2.5"), std::string::npos);
}

TEST(StepEvent, SaysTheAuxiliaryLossWhereItCounts) {
  StepMetrics metrics;
  metrics.aux_loss = 2.5;
  EXPECT_NE(step_event(metrics, 0.01).text().find(" aux=2.5"), std::string::npos);
  EXPECT_EQ(step_event(metrics, 0).text().find("aux"), std::string::npos) << "no gradient comes of it";
}

TEST(DecayEvent, NamesRowsOfNumbersThatTrainersOfHuggingFaceDecay) {
  const auto spec = [](const std::string& name, bool is_matrix) {
    ParameterSpec made;
    made.name = name;
    made.is_matrix = is_matrix;
    return made;
  };
  const std::vector<ParameterSpec> usual = {
      spec("model.embed_tokens.weight", true), spec("model.norm.weight", false),
      spec("model.layers.0.self_attn.q_proj.bias", false), spec("model.layers.0.linear_attn.dt_bias", false)};
  EXPECT_FALSE(decay_event(usual, {.adamw = {.weight_decay = 0.1}}));
  std::vector<ParameterSpec> more = usual;
  for (const char* layer : {"0", "1"})
    more.push_back(spec("model.layers." + std::string(layer) + ".self_attn.sinks", false));
  const auto event = decay_event(more, {.adamw = {.weight_decay = 0.1}});
  ASSERT_TRUE(event);
  EXPECT_NE(event->text().find("without_decay=2"), std::string::npos) << event->text();
  EXPECT_NE(event->text().find("model.layers.0.self_attn.sinks"), std::string::npos) << event->text();
  EXPECT_FALSE(decay_event(more, {.adamw = {.weight_decay = 0}}));
}

TEST(CollapseEvent, AllLayersOfAStepShareALine) {
  EXPECT_FALSE(collapse_event({}, {}));
  const CollapseEvent hot{.step = 40, .layer = 2, .expert = 5, .share_of_tokens = 0.83, .since = 40};
  EXPECT_EQ(
      collapse_event({hot}, {}).value().text(),
      "collapse=begins step=40 layer=2 expert=5 share_of_tokens=0.83 dead_experts=0 reason=\"most tokens of "
      "the layer chose this expert for 20 steps in a row; if it stays, raise `aux-loss-coef` or lower "
      "`lr`\"");
  CollapseEvent dead{
      .step = 40, .layer = 0, .sign = CollapseSign::kDeadExperts, .expert = 1, .dead_experts = 3};
  CollapseEvent end = hot;
  end.begins = false;
  end.layer = 7;
  end.since = 11;
  const std::string all = collapse_event({dead, hot, end}, {}).value().text();
  EXPECT_NE(all.find("collapse=begins step=40 layer=2 "), std::string::npos) << all;
  EXPECT_NE(all.find("also=\"layer 0 expert 1, layer 7 expert 5 ends\""), std::string::npos) << all;
  EXPECT_NE(
      collapse_event({dead}, {}).value().text().find("3 experts of the layer were not chosen for 20 steps"),
      std::string::npos);
  EXPECT_EQ(collapse_event({end}, {}).value().text(),
            "collapse=ends step=40 layer=7 expert=5 share_of_tokens=0.83 dead_experts=0 began=11 "
            "reason=\"load was even enough for 20 steps in a row\"");
}

TEST(MeasureStep, SaysNothingOfRebalancingThatWasOff) {
  EXPECT_FALSE(measure_step({}, 0, {}, Communicator::self()).metrics.rebalance);
}

TEST(Printable, KeepsLineEndsAndTabsAmongControlCharacters) {
  EXPECT_EQ(printable("a\nb\t\x1b[0m\x01"), "a\nb\t?[0m?");
}

}  // namespace
}  // namespace moeloom
