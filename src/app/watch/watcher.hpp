// A process beside each rank that ends the job when nothing moves any more.
//
// A rank that is stuck cannot say so, a stopped one least of all. So each rank makes a child before MPI
// starts, which reads the rank's position in memory that both share. A rank that has not moved for the time
// allowed makes every watcher leave its rank's position in a folder of the run. The watcher of the first rank
// that is not stopped reads them all, says on which rank the others wait, and ends its own rank with
// kStalledExitCode, by which mpirun ends the others.
#pragma once

#include "moeloom/base/position_board.hpp"

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>

namespace moeloom {

struct StallSettings {
  std::filesystem::path run;
  Index rank = 0, world = 1;
  std::optional<double> seconds = {};  // none: from the steps' own times, at least 30; 0: nobody ends the job
};

class Watcher {
 public:
  /// Makes the child, which only waits until watch(). Call it before MPI starts. argv: main's own, in whose
  /// memory the child writes its name, so that nobody takes it for a rank.
  explicit Watcher(std::span<char* const> argv);
  /// Ends it.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// For the rank's clock and communicators.
  PositionBoard& board();
  /// From now on this rank must move, to its end. The settings are the same on all ranks but for the rank.
  /// May be called again when they are known better.
  void watch(const StallSettings& settings);
  /// MPI has started, and the run's folder is this job's: what an earlier one said of a stall is removed.
  /// Returns when the watcher knows what this rank would leave on its node, from its launcher while that is
  /// there.
  void settle();
  /// From which an unsaid time follows.
  void step_took(double seconds);

 private:
  struct Shared;

  Shared* shared_ = nullptr;
  int child_ = -1;
  std::optional<double> said_;
};

/// Seconds that a rank may stay where it is: within steps; at one tensor or file while the run loads, saves
/// or ends; while MPI starts.
struct StallLimits {
  double step = 0, files = 0, start = 0;
};
/// said: none: 10 times the longest step, at least 30 s (300 s before the first step has ended), 1,800 s for
/// files and 600 s for the start; 0: never; else that time, and ten times it for files and the start.
StallLimits stall_limits(std::optional<double> said, std::optional<double> longest_step);

}  // namespace moeloom
