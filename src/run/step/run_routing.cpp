#include "step/run_routing.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "fields/option_values.hpp"

namespace moeloom {
namespace {

constexpr Index kDefaultRecordedSteps = 10;

Event event_of(const RoutingReplay& replay, StepRange steps) {
  const Index forced = replay.forced_steps(steps.from, steps.to);
  return Event()
      .with("replay", replay.file().path().string())
      .with("forced", std::to_string(forced) + " of " + std::to_string(steps.to - steps.from) + " steps")
      .with("by", replay.goes_by_number() ? "step number" : "turn")
      .with("reason", replay.goes_by_number() ? "its texts are this run's" : "its texts are others");
}

void refuse_no_steps(const std::optional<StepRange>& asked, StepRange run) {
  throw ConfigError({"`record-steps` " + value_text(asked) + " holds none of the steps " +
                     std::to_string(run.from) + " to " + std::to_string(run.to - 1) +
                     " that this run takes"});
}

}  // namespace

StepRange recorded_range(const std::optional<StepRange>& asked, StepRange run) {
  const StepRange range = asked.value_or(StepRange{run.to - kDefaultRecordedSteps, run.to});
  return {std::max(range.from, run.from), std::min(range.to, run.to)};
}

TrainerHooks RunRouting::hooks() {
  return {.before =
              [this](MicroBatchPlace place, Batch& batch) {
                if (replay_) replay_->give(place, batch);
                if (force_) force_(place, batch);
              },
          .after =
              [this](MicroBatchPlace place, const Batch& batch, const Decoder& decoder) {
                if (records(place.step)) recorder_->note(place, batch, decoder);
              }};
}

std::vector<Event> RunRouting::plan(const RoutingOptions& options, const RoutedRun& run,
                                    const BatchSource& batches, const Communicator& world) {
  std::vector<Event> events;
  if (!options.replay.empty()) {
    agree(world, [&] {
      replay_.emplace(options.replay, run.config, run.batch, world.size());
      replay_->match(batches, run.steps.from, run.steps.to, run.resumes);
    });
    events.push_back(event_of(*replay_, run.steps));
  }
  if (options.record.empty()) return events;
  range_ = recorded_range(options.record_steps, run.steps);
  if (range_.from >= range_.to) {
    agree(world, [&] {
      if (!run.resumes) refuse_no_steps(options.record_steps, run.steps);
    });
    events.push_back(Event()
                         .with("record", false)
                         .with("reason", "steps " + value_text(options.record_steps) +
                                             " came before the one that this run goes on from"));
    return events;
  }
  const Index tokens = run.batch.tokens();
  const StepRange whole = recorded_range(options.record_steps, {0, run.steps.to});  // as before a resume
  recorder_.emplace(options.record, routing_heading_of(run.config, tokens, run.batch.length, run.seed),
                    whole.from, whole.to, world);
  kept_before_ = run.resumes ? run.steps.from : 0;
  return events;
}

void RunRouting::force(Workload workload, const RoutedRun& run) {
  std::vector<WorkloadShape> shapes;  // of each sparse layer
  for (Index layer = 0; layer < run.config.num_hidden_layers; ++layer)
    if (run.config.is_sparse(layer))
      shapes.push_back({run.batch.tokens(), run.config.num_experts, run.config.top_k(layer)});
  force_ = [workload, shapes, seed = run.seed](MicroBatchPlace place, Batch& batch) {
    batch.given_topk_idx.clear();
    for (std::size_t i = 0; i < shapes.size(); ++i)
      batch.given_topk_idx.push_back(
          choose_experts(workload, shapes[i], seed + i, place.step, {batch.first_token, batch.tokens()}));
  };
}

void RunRouting::start() {
  if (recorder_) recorder_->start(kept_before_);
}

void RunRouting::end_step(const StepReport& report, Outputs& outputs, const Log& log) {
  if (!records(report.step)) return;
  if (!outputs.write("recording", [&] { recorder_->end_step(report.step, report.skipped); }))
    return recorder_.reset();
  if (report.step + 1 == range_.to)
    log.info(Event()
                 .with("recorded", recorder_->path().string())
                 .with("steps", std::to_string(range_.from) + " to " + std::to_string(range_.to - 1)));
}

}  // namespace moeloom
