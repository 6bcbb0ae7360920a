// What became of a run's wall time: RUN/restarts.jsonl, which launch/go-on.sh writes, beside its metrics.
#pragma once

#include "record/metrics.hpp"

namespace moeloom {

/// A job of the run that ended before the run did. Times are seconds since 1970.
struct Restart {
  double started = 0, ended = 0;
  Index exit_code = 0;
  std::string reason = {};
  std::optional<Index> rank = {};  // whose end the others followed
  std::string host = {};
  Index resumed = 0;         // steps in the checkpoint that it began from
  Index steps = 0;           // that had been done
  Index from = 0;            // of those, in the checkpoint that the next job went on from
  double lost_seconds = 0;   // of steps that were done again
  double lost_starting = 0;  // what those steps' lines said of starting and saving
  double lost_saving = 0;
};

/// Every line that is whole and makes sense; none for a file that does not exist or cannot be read.
std::vector<Restart> read_restarts(const std::filesystem::path& path);

/// Seconds since 1970.
double wall_clock();
/// When the system started this process, by the same clock.
double process_start();

/// Seconds from the first recorded start to now; what was trained before that start is of none of them.
struct TimeUse {
  double wall = 0;
  double trained = 0;   // steps that count
  double again = 0;     // steps that a later start did again
  double starting = 0;  // from a process's start to its first step
  double saving = 0;    // that saves held the steps
  double away = 0;      // between the end of a job and the start of the next
  Index restarts = 0;   // not those after an orderly stop

  /// Validations, exports, the end, and until a job's end was noticed.
  double rest() const;
  double share() const { return wall > 0 ? trained / wall : 0; }
};

/// started: of this process; saving: what its saves have held so far and no line says yet.
TimeUse time_use(const std::vector<StepMetrics>& steps, const std::vector<Restart>& restarts, double started,
                 double now, double saving);

}  // namespace moeloom
