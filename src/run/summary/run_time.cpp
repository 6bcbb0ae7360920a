#include "summary/run_time.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "record/exit_code.hpp"

namespace moeloom {
namespace {

Restart restart_of(const Document& line) {
  Restart restart{.started = line.number("started"),
                  .ended = line.number("ended"),
                  .exit_code = line.integer_or("exit_code", 0),
                  .reason = line.text_or("reason", ""),
                  .host = line.text_or("host", ""),
                  .resumed = line.integer_or("resumed", 0),
                  .steps = line.integer_or("steps", 0),
                  .from = line.integer_or("from", 0),
                  .lost_seconds = line.number_or("lost_seconds", 0),
                  .lost_starting = line.number_or("lost_starting", 0),
                  .lost_saving = line.number_or("lost_saving", 0)};
  if (line.has("rank")) restart.rank = line.integer("rank");
  return restart;
}

/// Since the machine started, in which /proc counts.
double since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The 22nd word of /proc/self/stat; the second may hold blanks and ends with the last bracket.
std::optional<double> started_since_boot() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) return std::nullopt;
  std::istringstream words(text.substr(bracket + 1));
  std::string word;
  for (int i = 3; i <= 22; ++i) words >> word;
  char* end = nullptr;
  const double ticks = std::strtod(word.c_str(), &end);
  if (end == word.c_str()) return std::nullopt;
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

std::vector<Restart> read_restarts(const std::filesystem::path& path) {
  std::vector<Restart> restarts;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return restarts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) try {
      restarts.push_back(restart_of(Document::parse(line, path.string())));
    } catch (const IoError&) {
      // a line of another program, or one that a kill cut short
    }
  return restarts;
}

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double process_start() {
  const auto started = started_since_boot();
  return wall_clock() - (started ? std::max(since_boot() - *started, 0.0) : 0.0);
}

double TimeUse::rest() const {
  return std::max(wall - trained - again - starting - saving - away, 0.0);
}

TimeUse time_use(const std::vector<StepMetrics>& steps, const std::vector<Restart>& restarts, double started,
                 double now, double saving) {
  TimeUse use{.saving = saving, .restarts = std::ranges::count_if(restarts, [](const Restart& restart) {
                                  return restart.exit_code != kStoppedExitCode;
                                })};
  const Index first = restarts.empty() ? 0 : restarts.front().resumed;
  const auto finite = [](double seconds) { return std::isfinite(seconds) ? seconds : 0.0; };
  for (const StepMetrics& step : steps) {
    if (step.step < first) continue;
    use.trained += finite(step.seconds);
    use.starting += finite(step.start_seconds);
    use.saving += finite(step.save_seconds);
  }
  for (std::size_t i = 0; i < restarts.size(); ++i) {
    use.again += restarts[i].lost_seconds;
    use.starting += restarts[i].lost_starting;
    use.saving += restarts[i].lost_saving;
    use.away +=
        std::max((i + 1 < restarts.size() ? restarts[i + 1].started : started) - restarts[i].ended, 0.0);
  }
  use.wall = now - (restarts.empty() ? started : std::min(restarts.front().started, started));
  return use;
}

}  // namespace moeloom
