#include "run/record/log.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "cli/rows/flag_words.hpp"
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace moeloom {
namespace {

constexpr const char* kPattern = "[%l] %v";
constexpr const char* kWipingPattern = "\r\033[K[%l] %v";

spdlog::level::level_enum spdlog_level(LogLevel level) {
  constexpr std::array kSpdlogLevels = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                        spdlog::level::err};
  return kSpdlogLevels[static_cast<std::size_t>(level)];
}

std::string quoted(std::string_view value) {
  if (!value.empty() && value.find_first_of(" =\"\\\t\n\r") == std::string_view::npos) {
    return std::string(value);
  }
  std::string text = "\"";
  for (const char c : value) {
    if (c == '\n')
      text += "\\n";
    else if (c == '\r')
      text += "\\r";
    else if (c == '"' || c == '\\')
      text += {'\\', c};
    else
      text += c;
  }
  return text + '"';
}

}  // namespace

Event& Event::with(std::string_view key, std::string_view value) {
  if (!text_.empty()) text_ += ' ';
  text_ += key;
  text_ += '=';
  const std::string shown = key == "reason" ? with_flags(value) : std::string(value);
  text_ += quoted(std::string_view(shown));
  return *this;
}

Event& Event::with(std::string_view key, Index value) {
  return with(key, std::string_view(std::to_string(value)));
}

Event& Event::with(std::string_view key, double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return with(key, std::string_view(text.data()));
}

Event& Event::with(std::string_view key, bool value) {
  return with(key, std::string_view(value ? "yes" : "no"));
}

Log::Log(const LogSettings& settings) : settings_(settings) {
  if (settings_.rank != 0) settings_.level = std::max(settings_.level, LogLevel::kWarn);
  console_ = std::make_shared<spdlog::logger>("console", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  console_->set_level(spdlog_level(settings_.level));
  console_->set_pattern(settings_.live_line ? kWipingPattern : kPattern);
}

Log::~Log() = default;

void Log::also_to(const std::filesystem::path& path, bool append) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string(), /*truncate=*/!append);
    file_ = std::make_shared<spdlog::logger>("file", std::move(sink));
  } catch (const spdlog::spdlog_ex& failure) {
    throw IoError("cannot write " + path.string() + ": " + failure.what());
  }
  file_->set_level(spdlog_level(std::min(settings_.level, LogLevel::kInfo)));
  file_->set_pattern(kPattern);
  file_->flush_on(spdlog::level::debug);
  // Once, not once a second as the library does by itself: a full disk may stay full for hours.
  file_->set_error_handler([console = console_, told = false](const std::string& message) mutable {
    if (std::exchange(told, true)) return;
    console->warn(Event().with("log file", "lacks lines").with("reason", message).text());
  });
}

void Log::record(const Event& event) {
  if (file_) file_->info(line(event));
}

void Log::write(LogLevel level, const Event& event) {
  const std::string text = line(event);
  console_->log(spdlog_level(level), text);
  if (file_) file_->log(spdlog_level(level), text);
}

std::string Log::line(const Event& event) const {
  if (settings_.rank == 0) return event.text();
  return "rank=" + std::to_string(settings_.rank) + " " + event.text();
}

}  // namespace moeloom
