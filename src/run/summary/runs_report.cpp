#include "summary/runs_report.hpp"

#include "base/text.hpp"
#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "fields/config_file.hpp"
#include "record/duration_text.hpp"
#include "summary/report.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using Runs = std::vector<RunRecord>;

/// The last `depth` parts of a path.
std::string name_of(const fs::path& folder, std::size_t depth) {
  const fs::path whole = fs::absolute(folder / "").lexically_normal().parent_path();
  std::vector<fs::path> parts(whole.begin(), whole.end());
  fs::path name;
  for (std::size_t i = parts.size() - std::min(depth, parts.size()); i < parts.size(); ++i) name /= parts[i];
  return name.string();
}

/// The shortest that no other folder has.
std::string short_name(const fs::path& folder, const std::vector<fs::path>& folders) {
  constexpr std::size_t kDeepest = 20;
  std::size_t depth = 1;
  const auto has_it = [&](const fs::path& other) { return name_of(other, depth) == name_of(folder, depth); };
  while (depth < kDeepest && std::ranges::count_if(folders, has_it) > 1) ++depth;
  return name_of(folder, depth);
}

RunRecord read_run(const fs::path& folder, const std::string& name) {
  const fs::path metrics = folder / "metrics.jsonl", configuration = folder / "train.conf";
  if (!fs::exists(metrics))
    throw IoError("expected a run in " + folder.string() +
                  ", found no metrics.jsonl in it; name the folder that train " + "was given as `run`");
  RunRecord run{name, read_metrics(metrics), read_restarts(folder / "restarts.jsonl")};
  if (run.steps.empty())
    throw IoError("expected steps in " + metrics.string() +
                  ", found no line that is whole; leave this run out until its first step is done");
  if (fs::exists(configuration)) run.configuration = read_text_file(configuration);
  return run;
}

/// NaN: it was never validated.
double lowest_validation(const RunRecord& run) {
  double lowest = std::numeric_limits<double>::quiet_NaN();
  for (const StepMetrics& step : run.steps)
    if (step.val_loss && !(*step.val_loss >= lowest)) lowest = *step.val_loss;
  return lowest;
}

std::vector<std::string> row_of(const RunRecord& run) {
  std::vector<double> rates;
  double seconds = 0;
  for (const StepMetrics& step : run.steps) {
    rates.push_back(step.tokens_per_s);
    if (std::isfinite(step.seconds)) seconds += step.seconds;
  }
  const StepMetrics& last = run.steps.back();
  return {run.name,
          readable(static_cast<double>(last.step + 1), 7),
          readable(last_loss(run.steps), 4),
          readable(lowest_validation(run), 4),
          readable(median(rates)),
          readable(static_cast<double>(last.tokens_seen)),
          duration_text(seconds),
          std::to_string(run.restarts.size())};
}

Section numbers_section(const Runs& runs) {
  Section section{.title = "Runs", .wide = true};
  section.table = {.heading = {"", "steps", "training loss", "lowest validation loss", "tokens/s, median",
                               "tokens seen", "time of steps", "restarts"},
                   .css_class = "numbers"};
  for (const RunRecord& run : runs) section.table.rows.push_back(row_of(run));
  return section;
}

/// What of their train.conf differs, a column each.
Section differences_section(const Runs& runs) {
  Section section{.title = "Options that differ", .note = "of train.conf", .wide = true};
  section.table.heading = {""};
  std::map<std::string, std::vector<std::string>> options;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    section.table.heading.push_back(runs[i].name);
    Violations ignored;  // of a file that somebody edited what can be read
    for (const auto& [name, given] : parse_config(runs[i].configuration, "train.conf", ignored)) {
      options[name].resize(runs.size());
      options[name][i] = given.value;
    }
  }
  for (const char* of_a_start : {"run", "overwrite"}) options.erase(of_a_start);
  for (const auto& [name, values] : options) {
    if (std::ranges::count(values, values.front()) == std::ssize(values)) continue;
    section.table.rows.push_back(values);
    section.table.rows.back().insert(section.table.rows.back().begin(), name);
  }
  return section;
}

}  // namespace

std::vector<RunRecord> read_runs(const std::vector<fs::path>& folders) {
  Runs runs;
  for (const fs::path& folder : folders) runs.push_back(read_run(folder, short_name(folder, folders)));
  return runs;
}

Report runs_report(const Runs& runs) {
  const bool several = runs.size() > 1;
  Report report{.title = "moeloom: " + (several ? std::to_string(runs.size()) + " runs" : runs.front().name),
                .drawn = drawn_of(runs)};
  report.sections = {numbers_section(runs), several ? differences_section(runs) : Section(),
                     {.drawing = "lines"},  {.drawing = "maps"},
                     phase_section(runs),   steps_section(runs)};
  if (several) return report;
  report.sections.push_back(layers_section(runs.front()));
  report.sections.push_back(
      {.title = "Configuration", .wide = true, .passages = {{"", runs.front().configuration, true}}});
  return report;
}

}  // namespace moeloom
