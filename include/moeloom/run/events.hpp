// What a run tells of itself while it goes on. Names of options stand in its texts as in train.conf, in
// backquotes: `lr`.
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

/// A line in the making, key=value; values with spaces, quotes or = stand in quotes.
class Event {
 public:
  Event& with(std::string_view key, std::string_view value);
  Event& with(std::string_view key, const char* value) { return with(key, std::string_view(value)); }
  Event& with(std::string_view key, Index value);
  Event& with(std::string_view key, int value) { return with(key, static_cast<Index>(value)); }
  Event& with(std::string_view key, double value);  // six significant digits
  Event& with(std::string_view key, bool value);    // yes or no
  const std::vector<std::pair<std::string, std::string>>& fields() const { return fields_; }
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

struct ProgressPoint {
  Index step = 0;  // updates done
  Index total = 0;
  double loss = 0;
  double tokens_per_s = 0;
  double seconds_left = 0;  // negative: not known yet
};

}  // namespace moeloom
