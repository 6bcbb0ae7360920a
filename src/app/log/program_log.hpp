// The log: one event, one line, key=value, the same keys each time.
//
//   [info] step=40 loss=3.214 aux=0.012 grad_norm=0.81
//
// Lines go to stderr, so that stdout is left to results, and to a file of the run if there is one.
#pragma once

#include "moeloom/run/host.hpp"

#include <memory>

#include "log/progress.hpp"

namespace spdlog {
class logger;
}

namespace moeloom {

struct LogSettings {
  Index rank = 0;
  LogLevel level = LogLevel::kInfo;  // ranks other than 0: at least kWarn, and their lines name the rank
  bool live_line = false;            // a progress line stands on the terminal: wipe it before each line
};

class ProgramLog {
 public:
  explicit ProgramLog(const LogSettings& settings);
  ~ProgramLog();
  ProgramLog(const ProgramLog&) = delete;
  ProgramLog& operator=(const ProgramLog&) = delete;

  /// Another rank, level or line, from now on.
  void set(const LogSettings& settings);
  /// Its functions, which it must outlive; a caller may add others.
  RunHost host();
  /// The live line's.
  std::function<void(const ProgressPoint&)> progress();

  void info(const Event& event) { write(LogLevel::kInfo, event); }
  void warn(const Event& event) { write(LogLevel::kWarn, event); }
  void write(LogLevel level, const Event& event);
  /// To the file alone.
  void record(const Event& event);
  /// From now on every line also goes to `path`, from info on however silent stderr is; kept if it exists and
  /// `append` holds. Throws IoError.
  void also_to(const std::filesystem::path& path, bool append);

 private:
  std::string line(const Event& event) const;

  LogSettings settings_;
  std::optional<ProgressLine> progress_;  // where it is live
  std::shared_ptr<spdlog::logger> console_;
  std::shared_ptr<spdlog::logger> file_;
};

}  // namespace moeloom
