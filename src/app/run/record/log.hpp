// The log: one event, one line, key=value, the same keys each time.
//
//   [info] step=40 loss=3.214 aux=0.012 grad_norm=0.81
//
// Lines go to stderr, so that stdout is left to results, and to a file of the run if there is one.
#pragma once

#include "moeloom/base/index.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/log_level.hpp"

namespace spdlog {
class logger;
}

namespace moeloom {

/// One line in the making; values with spaces, quotes or = stand in quotes. A `reason` may be the library's,
/// and gets the flags of the fields that it names.
class Event {
 public:
  Event& with(std::string_view key, std::string_view value);
  Event& with(std::string_view key, const char* value) { return with(key, std::string_view(value)); }
  Event& with(std::string_view key, Index value);
  Event& with(std::string_view key, int value) { return with(key, static_cast<Index>(value)); }
  Event& with(std::string_view key, double value);  // six significant digits
  Event& with(std::string_view key, bool value);    // yes or no
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct LogSettings {
  Index rank = 0;
  LogLevel level = LogLevel::kInfo;  // ranks other than 0: at least kWarn, and their lines name the rank
  bool live_line = false;            // a progress line stands on the terminal: wipe it before each line
};

class Log {
 public:
  explicit Log(const LogSettings& settings);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// From now on every line also goes to `path`, from info on however silent stderr is; kept if it exists and
  /// `append` holds. Throws IoError.
  void also_to(const std::filesystem::path& path, bool append);

  void debug(const Event& event) { write(LogLevel::kDebug, event); }
  void info(const Event& event) { write(LogLevel::kInfo, event); }
  void warn(const Event& event) { write(LogLevel::kWarn, event); }
  void error(const Event& event) { write(LogLevel::kError, event); }
  /// At info, to the file alone: what the progress line already shows.
  void record(const Event& event);

 private:
  void write(LogLevel level, const Event& event);
  std::string line(const Event& event) const;

  LogSettings settings_;
  std::shared_ptr<spdlog::logger> console_;
  std::shared_ptr<spdlog::logger> file_;
};

}  // namespace moeloom
