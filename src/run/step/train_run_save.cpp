// What a run puts on the disk, and what becomes of it where the disk refuses.
#include "base/text.hpp"
#include "comm/process_memory.hpp"
#include "io/line_file.hpp"
#include "moeloom/base/errors.hpp"

#include <utility>

#include "fields/job_words.hpp"
#include "fields/option_values.hpp"
#include "open/data_marks.hpp"
#include "open/run_settings.hpp"
#include "step/train_run.hpp"

namespace moeloom {
namespace {

/// The rest is for what a step may need more than the steps before, and for the system's cache of the files
/// that are written.
constexpr double kShareOfLeftMemory = 0.5;

/// "checkpoint-50", or "none".
std::string newest_of(const std::filesystem::path& run) {
  try {
    const auto checkpoints = checkpoints_of(run);
    return checkpoints.empty() ? "none" : checkpoints.back().filename().string();
  } catch (const IoError&) {
    return "none";
  }
}

}  // namespace

TrainerState TrainRun::state_at(Index step) {
  TrainerState state;
  state.step = step;
  state.dtype = std::string(dtype_text(decision().dtype.type));
  state.seed = options_.run.seed;
  state.data_file = sources_text(options_.data.sources);
  state.data_bytes = inputs_.data.bytes;
  state.global_batch = options_.batch.sequences;
  state.sequence_length = options_.batch.length;
  state.gmm_applied = decision().gmm.apply;
  state.gmm_reason = inputs_.recorded ? inputs_.recorded->gmm_reason : decision().gmm.reason;
  if (!recorded_settings_) {
    Document settings = document_of(settings_);
    add_routing(options_.router, inputs_.config, settings);
    add_data_marks(options_.data, inputs_.data, settings);
    for (const auto& [option, text] : format_texts(options_.keeping)) settings.set(option, text);
    if (const auto& adapter = inputs_.config.adapter; adapter && adapter->dropout > 0)
      settings.set(kDropoutSetting, adapter->dropout);
    recorded_settings_ = std::move(settings);
  }
  state.settings = *recorded_settings_;
  state.settings.set("tokens_seen", tokens_seen_);
  return state;
}

void TrainRun::save(Index done) {
  finish_save();
  try_saving(done, [&] {
    trainer_.settle();
    prepare_save();
    save_checkpoint(checkpoint_run(), model_->store, model_->optimizer, mesh_, inputs_.config,
                    state_at(done));
    end_save(done);
  });
}

void TrainRun::begin_save(Index done) {
  finish_save();
  if (!saves_in_background()) return save(done);
  try_saving(done, [&] {
    trainer_.settle();
    prepare_save();
    background_.begin(checkpoint_run(), state_at(done));
    saving_ = done;
  });
}

void TrainRun::go_on_saving() {
  if (!background_.busy()) return;
  try_saving(saving_, [&] {
    if (background_.advance()) end_save(saving_);
  });
}

void TrainRun::finish_save() {
  if (!background_.busy()) return;
  try_saving(saving_, [&] {
    background_.finish();
    end_save(saving_);
  });
}

void TrainRun::try_saving(Index done, const std::function<void()>& step) {
  enter(Activity::kSaving);
  const auto start = std::chrono::steady_clock::now();
  bool well = true;
  try {
    step();
  } catch (const AgreedError& error) {
    well = false;
    say_save_failed(done, error.what());
  }
  held_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (well && saved_ != done) return;  // under way
  const double held = held_seconds_ - std::exchange(held_before_, held_seconds_);
  if (well)
    log_.info(Event()
                  .with("saved", (options_.run.folder / ("checkpoint-" + std::to_string(done))).string())
                  .with("held_s", held));
}

void TrainRun::prepare_save() {
  save_clock_.restart(std::chrono::steady_clock::now());
  check_file_system();
}

void TrainRun::end_save(Index done) {
  check_file_system();  // it may have gone since, and what was written is then not where it belongs
  save_error_.clear();
  saved_ = done;
  prune(done);
}

bool TrainRun::saves_in_background() {
  if (in_background_) return *in_background_;
  std::string reason = "`async-save` false";
  if (options_.run.async_save.value_or(true)) reason = why_no_copy();
  if (reason.empty()) {
    try {
      background_.reserve();
    } catch (const AgreedError& error) {
      reason = error.what();
    }
  }
  in_background_ = reason.empty();
  const Index bytes = copied_bytes(model_->store, model_->optimizer, mesh_);
  Event event;
  event.with("async_save", *in_background_).with("copy", bytes_text(static_cast<double>(bytes)));
  log_.info(reason.empty() ? event : event.with("reason", reason));
  return *in_background_;
}

/// By the memory that is there after the first steps, which have taken what they need.
std::string TrainRun::why_no_copy() {
  if (options_.run.memory_bytes > 0 && !decision().save_copy)
    return "auto: no room for a copy within memory ceiling = " +
           bytes_text(static_cast<double>(options_.run.memory_bytes));
  if (options_.run.async_save) return {};
  double on_node = static_cast<double>(copied_bytes(model_->store, model_->optimizer, mesh_));
  mesh_.node().all_sum(std::span(&on_node, 1));
  const auto left = static_cast<double>(available_memory());
  const bool fits = on_node <= kShareOfLeftMemory * left;
  const std::string mine =
      fits ? "" : "auto: copies of " + bytes_text(on_node) + " on a node with " + bytes_text(left) + " left";
  for (const std::string& text : mesh_.world().all_gather_text(mine))
    if (!text.empty()) return text;
  return {};
}

void TrainRun::check_file_system() {
  agree_on_disk([&] {
    if (file_system_of(options_.run.folder) == file_system_) return;
    throw IoError(options_.run.folder.string() +
                  " is on another file system than at the start: a mount is gone, and nothing is to be "
                  "written in its place");
  });
}

void TrainRun::say_save_failed(Index done, const std::string& reason) {
  save_error_ = reason;
  if (!is_rank_0()) return;
  log_.warn(Event()
                .with("save", "failed")
                .with("step", done)
                .with("reason", reason)
                .with("last", newest_of(options_.run.folder)));
}

void TrainRun::prune(Index done) {
  finish_pruning();
  if (!is_rank_0()) return;
  const auto remove = [folder = options_.run.folder, keep = options_.run.keep, done]() -> std::string {
    try {
      prune_checkpoints(folder, keep, done);
      return {};
    } catch (const std::exception& error) {
      return error.what();
    }
  };
  try {
    pruning_ = std::async(std::launch::async, remove);
  } catch (const std::system_error&) {
    pruning_ = std::async(std::launch::deferred, remove);  // no thread is to be had
  }
}

void TrainRun::finish_pruning() {
  if (!pruning_.valid()) return;
  const std::string error = pruning_.get();
  if (!error.empty()) log_.warn(Event().with("old checkpoints", "not removed").with("reason", error));
}

bool TrainRun::write_output(const char* what, const std::function<void()>& write) {
  try {
    agree(mesh_.world(), write);
    return true;
  } catch (const AgreedError& error) {
    output_lost_ = true;
    warn_once(Event().with(what, "not written").with("reason", error.what()));
    return false;
  }
}

void TrainRun::export_weights() {
  const std::filesystem::path& folder = options_.run.export_folder;
  const auto write = [&] {
    export_model(folder, model_->store, mesh_, inputs_.config,
                 {.shard_bytes = options_.run.shard_bytes, .dtype = options_.run.export_dtype},
                 inputs_.words);
  };
  if (write_output("export", write))
    log_.info(Event()
                  .with("exported", folder.string())
                  .with("dtype", std::string(dtype_text(options_.run.export_dtype))));
}

void TrainRun::write_trace() {
  if (write_output("trace", [&] { trace_->write(); }))
    log_.info(Event().with("trace", trace_->path().string()));
}

void TrainRun::write_line(const StepMetrics& metrics) {
  if (!is_rank_0()) return;
  const Index waited = metrics_->waiting_lines();
  const std::string error = metrics_->append(metrics);
  const std::string before = std::exchange(metrics_error_, error);
  if (error.empty() == before.empty()) return;
  if (!error.empty())
    log_.warn(Event().with("metrics", "waiting").with("step", metrics.step).with("reason", error));
  else
    log_.warn(Event()
                  .with("metrics", "written again")
                  .with("step", metrics.step)
                  .with("waited", waited)
                  .with("lost", metrics_->lost_lines()));
}

RunEnd TrainRun::end_as(RunEnd otherwise) {
  finish_pruning();
  if (held_seconds_ > 0)
    log_.info(Event()
                  .with("saves_held_s", held_seconds_)
                  .with("share_of_steps", held_seconds_ / std::max(seconds_ + held_seconds_, 1e-9)));
  const bool lines_lost = !metrics_error_.empty();
  const bool lost = mesh_.world().all_max(lines_lost ? 1 : 0) > 0 || output_lost_ || !save_error_.empty();
  if (!lost) return otherwise;
  if (is_rank_0())
    log_.error(Event()
                   .with("disk", "failed")
                   .with("last", newest_of(options_.run.folder))
                   .with("reason", !save_error_.empty() ? "the last checkpoint was not saved: " + save_error_
                                   : output_lost_ ? "not everything was written; the lines above say what"
                                                  : "metrics.jsonl lacks steps: " + metrics_error_));
  return RunEnd::kOutputLost;
}

}  // namespace moeloom
