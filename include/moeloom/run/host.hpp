// What the caller of a run gives it: where its events go, and whether it should stop.
#pragma once

#include "moeloom/base/position_board.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/run/events.hpp"
#include "moeloom/run/flags.hpp"
#include "moeloom/run/options.hpp"

namespace moeloom {

/// Functions that a run calls on each rank, in the thread that called it; any may be missing. The library
/// prints nothing, reads no environment and handles no signal.
struct RunHost {
  std::function<void(LogLevel, const Event&)> say = {};
  /// At info, for a file alone: what `progress` shows already.
  std::function<void(const Event&)> record = {};
  /// After every step. Where it is missing, steps are said.
  std::function<void(const ProgressPoint&)> progress = {};
  /// Rank 0: from now on lines may go to a file of the run too, behind those that it holds if `append`.
  std::function<void(const std::filesystem::path& file, bool append)> open_file = {};
  /// How the caller names options in a text that is shown; none: as the library does, `lr`.
  std::function<std::string(std::string_view)> words = {};
  /// Rank 0: the text that the model wrote at the end, behind its prompt.
  std::function<void(const std::string&)> show_sample = {};
  /// What an environment adds to the options; what it throws is said with what is wrong with them.
  std::function<RunFlags()> flags = {};
  /// Options are settled and the mesh is made, before memory is taken. The rest of the host may be filled in
  /// here.
  std::function<void(const TrainOptions& settled, const Mesh& mesh, RunHost& host)> opened = {};
  /// The run's folder is this job's, and steps begin, or the answer of a question does (Asking); and how many
  /// seconds each step took.
  std::function<void()> begin = {};
  std::function<void(double)> step_took = {};
  /// The number of a signal that asks for the end since it was last called, 0 for none (StopSignals::take):
  /// all ranks stop after the same step, with a checkpoint.
  std::function<int()> stop = {};
  /// When the caller began what this run's time is counted from, in seconds since 1970; 0: now.
  double started = 0;
  /// Where each rank is, for one who watches it; null: nobody does.
  PositionBoard* board = nullptr;
};

}  // namespace moeloom
