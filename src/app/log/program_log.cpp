#include "log/program_log.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <iostream>
#include <utility>

#include "cli/flag_names.hpp"
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

}  // namespace

ProgramLog::ProgramLog(const LogSettings& settings)
    : console_(
          std::make_shared<spdlog::logger>("console", std::make_shared<spdlog::sinks::stderr_sink_mt>())) {
  set(settings);
}

void ProgramLog::set(const LogSettings& settings) {
  settings_ = settings;
  if (settings_.rank != 0) settings_.level = std::max(settings_.level, LogLevel::kWarn);
  if (settings_.live_line)
    progress_.emplace(std::cerr, true);
  else
    progress_.reset();
  console_->set_level(spdlog_level(settings_.level));
  console_->set_pattern(settings_.live_line ? kWipingPattern : kPattern);
}

ProgramLog::~ProgramLog() = default;

RunHost ProgramLog::host() {
  RunHost host;
  host.say = [this](LogLevel level, const Event& event) { write(level, event); };
  host.record = [this](const Event& event) { record(event); };
  host.open_file = [this](const std::filesystem::path& file, bool append) { also_to(file, append); };
  host.words = with_flags;
  return host;
}

std::function<void(const ProgressPoint&)> ProgramLog::progress() {
  return [this](const ProgressPoint& point) { progress_->show(point); };
}

void ProgramLog::also_to(const std::filesystem::path& path, bool append) {
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

void ProgramLog::record(const Event& event) {
  if (file_) file_->info(line(event));
}

void ProgramLog::write(LogLevel level, const Event& event) {
  const std::string text = line(event);
  if (progress_) progress_->clear();
  console_->log(spdlog_level(level), text);
  if (file_) file_->log(spdlog_level(level), text);
}

std::string ProgramLog::line(const Event& event) const {
  Event shown;
  for (const auto& [key, value] : event.fields())
    shown.with(key, key == "reason" ? with_flags(value) : with_flag_names(value));
  if (settings_.rank == 0) return shown.text();
  return "rank=" + std::to_string(settings_.rank) + " " + shown.text();
}

}  // namespace moeloom
