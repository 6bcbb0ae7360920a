#include "step/saver.hpp"

#include "base/text.hpp"
#include "comm/process_memory.hpp"
#include "io/line_file.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <utility>

namespace moeloom {
namespace {

/// The rest is for what a step may need more than the steps before, and for the system's cache of the files
/// that are written.
constexpr double kShareOfLeftMemory = 0.5;

}  // namespace

Saver::Saver(const OpenedRun& run, TrainingState& model, Trainer& trainer, RunWatch& watch)
    : run_(run),
      model_(model),
      trainer_(trainer),
      watch_(watch),
      clock_(run.options.run.save_minutes, SaveClock::Clock::now()),
      background_(model.store, model.optimizer, run.mesh, run.inputs.config) {}

void Saver::open() {
  clock_.restart(SaveClock::Clock::now());
  if (run_.is_rank_0()) file_system_ = file_system_of(run_.options.run.folder);
}

void Saver::after_step(const StepsDone& done, const WorldStep& all, bool sound) {
  const RunOptions& asked = run_.options.run;
  if (all.parts_done && background_.busy())
    attempt(under_way_, [&] {
      if (background_.advance()) conclude(under_way_);
    });
  if (saves_before_the_end(asked)) in_background();  // its memory is there by the first save
  // By the clock it may as well be a step later: a save under way is not waited for.
  const bool by_clock = all.save_due && !background_.busy();
  const bool by_count = asked.save_every > 0 && done.steps % asked.save_every == 0;
  if ((by_clock || by_count) && sound && done.steps < asked.steps) begin(done);
}

void Saver::save(const StepsDone& done) {
  finish();
  attempt(done.steps, [&] {
    prepare();
    save_checkpoint(place(), model_.store, model_.optimizer, run_.mesh, run_.inputs.config,
                    run_.state_at(done.steps, done.tokens_seen));
    conclude(done.steps);
  });
}

void Saver::begin(const StepsDone& done) {
  finish();
  if (!in_background()) return save(done);
  attempt(done.steps, [&] {
    prepare();
    background_.begin(place(), run_.state_at(done.steps, done.tokens_seen));
    under_way_ = done.steps;
  });
}

void Saver::finish() {
  if (!background_.busy()) return;
  attempt(under_way_, [&] {
    background_.finish();
    conclude(under_way_);
  });
}

void Saver::attempt(Index steps, const std::function<void()>& part) {
  watch_.enter(Activity::kSaving);
  const auto start = std::chrono::steady_clock::now();
  bool well = true;
  try {
    part();
  } catch (const AgreedError& error) {
    well = false;
    error_ = error.what();
    if (run_.is_rank_0())
      run_.log.warn(
          Event().with("save", "failed").with("step", steps).with("reason", error_).with("last", newest()));
  }
  held_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (well && !has(steps)) return;  // under way
  const double held = held_seconds_ - std::exchange(held_before_, held_seconds_);
  if (well)
    run_.log.info(Event()
                      .with("saved", run_.file(("checkpoint-" + std::to_string(steps)).c_str()).string())
                      .with("held_s", held));
}

bool Saver::in_background() {
  if (in_background_) return *in_background_;
  std::string reason = run_.options.run.async_save.value_or(true) ? why_no_copy() : "`async-save` false";
  if (reason.empty()) {
    try {
      background_.reserve();
    } catch (const AgreedError& error) {
      reason = error.what();
    }
  }
  in_background_ = reason.empty();
  const Index bytes = copied_bytes(model_.store, model_.optimizer, run_.mesh);
  Event event;
  event.with("async_save", *in_background_).with("copy", bytes_text(static_cast<double>(bytes)));
  run_.log.info(reason.empty() ? event : event.with("reason", reason));
  return *in_background_;
}

/// By the memory that is there after the first steps, which have taken what they need.
std::string Saver::why_no_copy() const {
  const RunOptions& asked = run_.options.run;
  if (asked.memory_bytes > 0 && !run_.decision.save_copy)
    return "auto: no room for a copy within memory ceiling = " +
           bytes_text(static_cast<double>(asked.memory_bytes));
  if (asked.async_save) return {};
  double on_node = static_cast<double>(copied_bytes(model_.store, model_.optimizer, run_.mesh));
  run_.mesh.node().all_sum(std::span(&on_node, 1));
  const auto left = static_cast<double>(available_memory());
  const bool fits = on_node <= kShareOfLeftMemory * left;
  const std::string mine =
      fits ? "" : "auto: copies of " + bytes_text(on_node) + " on a node with " + bytes_text(left) + " left";
  for (const std::string& text : run_.world().all_gather_text(mine))
    if (!text.empty()) return text;
  return {};
}

void Saver::prepare() {
  trainer_.settle();
  clock_.restart(SaveClock::Clock::now());
  check_file_system();
}

void Saver::conclude(Index steps) {
  check_file_system();  // it may have gone since, and what was written is then not where it belongs
  error_.clear();
  saved_ = steps;
  finish_pruning();
  if (run_.is_rank_0()) pruning_.begin(run_.options.run.folder, run_.options.run.keep, steps);
}

void Saver::finish_pruning() {
  if (const std::string error = pruning_.finish(); !error.empty())
    run_.log.warn(Event().with("old checkpoints", "not removed").with("reason", error));
}

void Saver::check_file_system() const {
  agree(run_.world(), [&] {
    const std::filesystem::path& folder = run_.options.run.folder;
    if (!run_.is_rank_0() || file_system_of(folder) == file_system_) return;
    throw IoError(folder.string() +
                  " is on another file system than at the start: a mount is gone, and nothing is to be "
                  "written in its place");
  });
}

void Saver::end(double seconds) {
  finish_pruning();
  if (held_seconds_ > 0)
    run_.log.info(Event()
                      .with("saves_held_s", held_seconds_)
                      .with("share_of_steps", held_seconds_ / std::max(seconds + held_seconds_, 1e-9)));
}

std::string Saver::newest() const {
  try {
    const auto checkpoints = checkpoints_of(run_.options.run.folder);
    return checkpoints.empty() ? "none" : checkpoints.back().filename().string();
  } catch (const IoError&) {
    return "none";
  }
}

}  // namespace moeloom
