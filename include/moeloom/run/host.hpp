// What the caller of a run gives it: where its events go, and whether it should stop.
#pragma once

#include "moeloom/base/position_board.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/run/events.hpp"
#include "moeloom/run/flags.hpp"
#include "moeloom/run/options.hpp"

namespace moeloom {

/// Functions that a run calls in the thread that called it, on each rank unless they say otherwise; any may
/// be missing. The library prints nothing, reads no environment and handles no signal. A run keeps a copy:
/// what the functions refer to has to outlive the run. What they throw comes out of the run's function, on
/// one rank alone.
struct RunHost {
  /// An event, on the ranks that know it: most are said on every rank, warnings mostly on rank 0.
  std::function<void(LogLevel, const Event&)> say = {};
  /// An event of level kInfo for a file alone: what `progress` shows already.
  std::function<void(const Event&)> record = {};
  /// After every step. Where it is missing, steps are said instead, every options.run.log_every of them.
  std::function<void(const ProgressPoint&)> progress = {};
  /// Rank 0: the run's folder is there, and from now on lines may go to this file in it too, behind those
  /// that it holds if `append`.
  std::function<void(const std::filesystem::path& file, bool append)> open_file = {};
  /// A text of the library, with options in backquotes (`lr`), in the caller's own words, for the report;
  /// none: as it is.
  std::function<std::string(std::string_view)> words = {};
  /// Rank 0: the text that the model wrote at the end, behind its prompt.
  std::function<void(const std::string&)> show_sample = {};
  /// What an environment adds to the options, asked once; what it throws is part of the AgreedError that says
  /// what is wrong with them.
  std::function<RunFlags()> flags = {};
  /// Training: options are settled and the mesh is made, before memory is taken. The rest of the host may be
  /// filled in here; `host` is the run's copy, and ends with it.
  std::function<void(const TrainOptions& settled, const Mesh& mesh, RunHost& host)> opened = {};
  /// The run's folder is this job's, and steps begin, or the answer to a question does (Asking); and after
  /// each step the seconds that it took.
  std::function<void()> begin = {};
  std::function<void(double)> step_took = {};
  /// Asked after every step: the number of a signal that has asked for the end since the last time, 0 for
  /// none (StopSignals::take). If any rank answers, all stop after the same step, with a checkpoint.
  std::function<int()> stop = {};
  /// When the caller began what this run's time is counted from, in seconds since 1970; 0: now.
  double started = 0;
  /// Where this rank is, for one who watches it; must outlive the run. null: nobody does.
  PositionBoard* board = nullptr;
};

}  // namespace moeloom
