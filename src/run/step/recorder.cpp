#include "step/recorder.hpp"

#include <algorithm>
#include <utility>

#include "step/run_result.hpp"
#include "summary/run_report.hpp"

namespace moeloom {
namespace {

std::vector<Index> top_k_of_layers(const ModelConfig& config) {
  std::vector<Index> top_k;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) top_k.push_back(config.top_k(layer));
  return top_k;
}

}  // namespace

Recorder::Recorder(const OpenedRun& run) : run_(run), collapse_watch_(top_k_of_layers(run.inputs.config)) {}

void Recorder::open() {
  start_seconds_ = wall_clock() - run_.host.started;
  if (!run_.is_rank_0()) return;
  metrics_.emplace(run_.file("metrics.jsonl"), run_.first_step());
  if (!run_.inputs.recorded) return;
  const std::vector<StepMetrics> earlier = read_metrics(run_.file("metrics.jsonl"));
  tokens_seen_ = tokens_before(earlier, *run_.inputs.recorded);
  go_on_watching(earlier);
}

/// The collapses that the run's folder tells of are not told again.
void Recorder::go_on_watching(const std::vector<StepMetrics>& earlier) {
  const ModelConfig& config = run_.inputs.config;
  std::vector<CollapseEvent> told;
  for (const StepMetrics& step : earlier)
    for (const CollapseEvent& event : step.collapse)
      if (event.layer >= 0 && event.layer < config.num_hidden_layers && event.expert >= 0 &&
          event.expert < config.num_experts)
        told.push_back(event);
  collapse_watch_.resume(told);
}

void Recorder::record(const StepReport& report, StepMetrics metrics, Index row_slices) {
  if (!report.skipped) {
    metrics.collapse = collapse_watch_.step(report.step, report.chosen_per_expert);
    last_rows_ = report.rows_per_expert;
  }
  metrics.start_seconds = std::exchange(start_seconds_, 0);
  metrics.rss_bytes = memory_bytes_ = std::max(memory_bytes_, metrics.rss_bytes);
  tokens_seen_ = metrics.tokens_seen;
  seconds_ += metrics.seconds;
  ++steps_;
  tell_of_slices(report.step, row_slices);
  if (metrics_)
    if (const auto event = metrics_->append(metrics)) run_.log.warn(*event);
  tell(metrics);
}

void Recorder::tell_of_page(const std::string& why_not) const {
  if (!why_not.empty()) run_.log.warn(Event().with("page", "not written").with("reason", why_not));
}

void Recorder::show() {
  if (!run_.is_rank_0()) return;
  tell_of_page(page_.write(run_.options.run.folder, [&] {
    ReportInfo info = page_info(run_, last_rows_);
    info.goes_on_to = run_.options.run.steps;
    return info;
  }));
}

void Recorder::show_stopped() {
  if (!run_.is_rank_0()) return;
  tell_of_page(page_.write_last(run_.options.run.folder, [&] {
    ReportInfo info = page_info(run_, last_rows_);
    info.goes_on_to = run_.options.run.steps;
    info.stopped = true;
    return info;
  }));
}

void Recorder::tell_of_slices(Index step, Index row_slices) {
  if (row_slices <= 1 || std::exchange(told_of_slices_, true)) return;
  run_.warn_once(Event()
                     .with("step", step)
                     .with("row_slices", row_slices)
                     .with("reason", "a rank's rows of a layer were more than row budget = " +
                                         std::to_string(run_.decision.row_budget.rows)));
}

void Recorder::tell(const StepMetrics& metrics) const {
  const Index total = run_.options.run.steps, done = metrics.step + 1;
  const Event event = step_event(metrics, run_.settings.aux_loss_coef);
  if (run_.host.progress)
    run_.log.record(event);
  else if (metrics.step % run_.options.run.log_every == 0 || done == total)
    run_.log.info(event);
  if (const auto collapse = collapse_event(metrics.collapse, collapse_watch_.rule()))
    run_.warn_once(*collapse);
  if (!run_.host.progress) return;
  const double a_step = seconds_ / static_cast<double>(steps_);
  run_.host.progress({.step = done,
                      .total = total,
                      .loss = metrics.loss,
                      .tokens_per_s = metrics.tokens_per_s,
                      .seconds_left = a_step * static_cast<double>(total - done)});
}

}  // namespace moeloom
