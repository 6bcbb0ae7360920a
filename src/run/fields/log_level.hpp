// Below which the log is silent.
#pragma once

#include <array>
#include <optional>
#include <string_view>

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

}  // namespace moeloom
