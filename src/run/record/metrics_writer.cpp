#include "record/metrics_writer.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"

#include <utility>

namespace moeloom {
namespace {

/// None of a line that is not what it should be, as one that a kill cut short.
std::optional<Index> step_of(const std::string& line, const std::filesystem::path& path) {
  try {
    return Document::parse(line, path.string()).integer("step");
  } catch (const IoError&) {
    return std::nullopt;
  }
}

void keep_steps_before(Index first_step, const std::filesystem::path& path) {
  std::string kept;
  each_line(path, [&](const std::string& line, bool) {
    if (const auto step = step_of(line, path); step && *step < first_step) kept += line + '\n';
  });
  replace_file(path, kept);
}

}  // namespace

MetricsWriter::MetricsWriter(const std::filesystem::path& path, Index first_step)
    : file_((keep_steps_before(first_step, path), path)) {}

std::optional<Event> MetricsWriter::append(const StepMetrics& metrics) {
  const Index waited = file_.waiting_lines();
  const std::string before = std::exchange(error_, file_.append(metrics_line(metrics)));
  if (error_.empty() == before.empty()) return std::nullopt;
  if (!error_.empty())
    return Event().with("metrics", "waiting").with("step", metrics.step).with("reason", error_);
  return Event()
      .with("metrics", "written again")
      .with("step", metrics.step)
      .with("waited", waited)
      .with("lost", file_.lost_lines());
}

}  // namespace moeloom
