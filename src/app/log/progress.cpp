#include "log/progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "cli/terminal.hpp"
#include "record/duration_text.hpp"

namespace moeloom {
namespace {

constexpr auto kLeastPause = std::chrono::milliseconds(100);
constexpr Index kBarWidth = 20;
constexpr const char* kWipe = "\r\033[K";

std::string bar(Index step, Index total) {
  const Index full = total > 0 ? std::clamp(step * kBarWidth / total, Index{0}, kBarWidth) : 0;
  return "[" + std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(kBarWidth - full), ' ') + "]";
}

std::string rate_text(double per_second) {
  std::array<char, 64> text;
  if (per_second >= 9999.5)
    std::snprintf(text.data(), text.size(), "%.1fk", per_second / 1000);
  else
    std::snprintf(text.data(), text.size(), "%.0f", per_second);
  return text.data();
}

}  // namespace

std::string progress_text(const ProgressPoint& point, Index columns) {
  std::array<char, 64> loss;
  std::snprintf(loss.data(), loss.size(), "%.3f", point.loss);
  const std::string total = std::to_string(point.total);
  std::string step = std::to_string(point.step);
  step.insert(0, total.size() - std::min(total.size(), step.size()), ' ');
  const std::string text = step + "/" + total + " " + bar(point.step, point.total) + " loss " + loss.data() +
                           "  " + rate_text(point.tokens_per_s) + " tokens/s  " +
                           duration_text(point.seconds_left) + " left";
  return text.substr(0, static_cast<std::size_t>(std::max<Index>(columns - 1, 0)));
}

void ProgressLine::show(const ProgressPoint& point) {
  if (!live_) return;
  const auto now = Clock::now();
  if (shown_ && now - last_ < kLeastPause && point.step < point.total) return;
  last_ = now;
  shown_ = true;
  out_ << kWipe << progress_text(point, terminal_columns()) << std::flush;
}

void ProgressLine::clear() {
  if (live_ && shown_) out_ << kWipe << std::flush;
  shown_ = false;
}

}  // namespace moeloom
