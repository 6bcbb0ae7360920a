#include "comm/process_memory.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/run/stop_signals.hpp"
#include "moeloom/run/training.hpp"

#include <iostream>

#include "cli/environment.hpp"
#include "cli/file_errors.hpp"
#include "cli/options.hpp"
#include "cli/terminal.hpp"
#include "commands/commands.hpp"
#include "fields/train_fields.hpp"
#include "log/program_log.hpp"
#include "open/processors.hpp"
#include "record/exit_code.hpp"
#include "summary/run_report.hpp"
#include "summary/run_time.hpp"
#include "watch/watcher.hpp"

namespace moeloom {

namespace {

int exit_code_of(RunEnd end) {
  return end == RunEnd::kDone ? 0 : end == RunEnd::kStopped ? kStoppedExitCode : kDiskExitCode;
}

/// What the program does for a run that is about to take its memory: it is watched, logs at the level that is
/// asked for, and has its threads.
void settle_program(const TrainOptions& options, const RunFlags& flags, const Mesh& mesh, ProgramLog& log,
                    Watcher& watcher, RunHost& host) {
  const Communicator& world = mesh.world();
  watcher.watch({options.run.folder, world.rank(), world.size(), options.run.stall_seconds});
  const bool live =
      world.rank() == 0 && progress_is_live(options.run.progress, flags.log_level, stderr_is_watched());
  log.set({.rank = world.rank(), .level = flags.log_level, .live_line = live});
  if (live) host.progress = log.progress();
  set_threads(threads_for(options.kernels.threads, flags.threads, mesh.node()));
}

}  // namespace

int train_command(int argc, char** argv, Watcher& watcher) {
  return_freed_blocks();  // first: rows that come vary from step to step
  Communicator world = Communicator::world();
  world.report_to(watcher.board());
  watcher.board().enter(Activity::kLoading);
  TrainOptions asked;
  agree(world, [&] { asked = with_file_errors([&] { return parse_train_options(argc, argv); }); });
  RunFlags flags;
  ProgramLog log{LogSettings()};
  std::optional<StopSignals> signals;
  RunHost host = log.host();
  host.board = &watcher.board();
  host.started = process_start();
  host.flags = [&] { return flags = read_environment(); };
  host.opened = [&](const TrainOptions& settled, const Mesh& mesh, RunHost& run) {
    settle_program(settled, flags, mesh, log, watcher, run);
    signals.emplace();
  };
  host.begin = [&] { watcher.settle(); };
  host.step_took = [&](double seconds) { watcher.step_took(seconds); };
  host.stop = [&] { return signals->take(); };
  host.show_sample = [&](const std::string& text) {
    std::cout << asked.run.prompt << printable(text) << "\n";
  };
  Training training(std::move(world), asked, host);
  while (training.step()) continue;
  return exit_code_of(training.finish());
}

void watch_from_start(int argc, char** argv, Watcher& watcher) try {
  const RunOptions run = parse_train_options(argc, argv).run;
  watcher.watch({run.folder, launcher_rank(), launcher_ranks(), run.stall_seconds});
} catch (const Error&) {
  // all ranks say it together, once they can
}

}  // namespace moeloom
