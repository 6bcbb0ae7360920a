// What a run tells of itself while it goes on, to its host (RunHost). Names of options stand in its texts as
// the run's file train.conf has them, in backquotes: `lr`. Values; no collective.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moeloom {

/// How much an event matters, rising.
enum class LogLevel { kDebug, kInfo, kWarn, kError };
inline constexpr std::array kLogLevels = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn,
                                          LogLevel::kError};
inline constexpr std::string_view kLogLevelTexts = "debug, info, warn, error";

constexpr std::string_view name_of(LogLevel level) {
  constexpr std::array<std::string_view, kLogLevels.size()> names = {"debug", "info", "warn", "error"};
  return names[static_cast<std::size_t>(level)];
}
constexpr std::optional<LogLevel> log_level_from_text(std::string_view text) {
  for (const LogLevel level : kLogLevels)
    if (name_of(level) == text) return level;
  return std::nullopt;
}

/// One event: keys and values in order, as a line of a log or one by one.
class Event {
 public:
  Event& with(std::string_view key, std::string_view value);
  Event& with(std::string_view key, const char* value) { return with(key, std::string_view(value)); }
  Event& with(std::string_view key, Index value);
  Event& with(std::string_view key, int value) { return with(key, static_cast<Index>(value)); }
  Event& with(std::string_view key, double value);  // six significant digits
  Event& with(std::string_view key, bool value);    // yes or no
  /// Values as texts, without quotes.
  const std::vector<std::pair<std::string, std::string>>& fields() const { return fields_; }
  /// key=value key="a value": empty values, and those with spaces, quotes, backslashes or =, stand in quotes.
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

/// How far a run is, after a step.
struct ProgressPoint {
  Index step = 0;           // steps done, with those before a resume
  Index total = 0;          // of options.run.steps
  double loss = 0;          // of this step
  double tokens_per_s = 0;  // of all ranks, in this step
  double seconds_left = 0;  // negative: not known yet
};

}  // namespace moeloom
