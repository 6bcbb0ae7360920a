#include "summary/run_data.hpp"

#include "base/text.hpp"
#include "report/columns.hpp"
#include "report/html.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "summary/collapse_report.hpp"
#include "summary/restart_report.hpp"

namespace moeloom {
namespace {

using Steps = std::vector<StepMetrics>;

constexpr std::size_t kMostPoints = 1500;  // of a line: more than a wide screen has columns for it
constexpr std::size_t kMostCells = 12000;  // of a map, and a page has several
constexpr std::size_t kMostColumns = 240;
constexpr int kDigits = 6, kMapDigits = 4;

struct LineFigure {
  const char* key;
  const char* name;
  double (*of)(const StepMetrics&);
};
constexpr double kNotValidated = std::numeric_limits<double>::quiet_NaN();
constexpr std::array kLines = {
    LineFigure{"loss", "training loss", [](const StepMetrics& step) { return step.loss; }},
    LineFigure{"val_loss", "validation loss",
               [](const StepMetrics& step) { return step.val_loss.value_or(kNotValidated); }},
    LineFigure{"tokens_per_s", "tokens/s", [](const StepMetrics& step) { return step.tokens_per_s; }},
    LineFigure{"grad_norm", "gradient norm", [](const StepMetrics& step) { return step.grad_norm; }},
    LineFigure{"learning_rate", "learning rate", [](const StepMetrics& step) { return step.learning_rate; }},
    LineFigure{"aux_loss", "load-balancing loss", [](const StepMetrics& step) { return step.aux_loss; }}};

struct LayerFigure {
  const char* key;
  const char* name;
  double LayerMetrics::*of;
  Keep worst;
};
constexpr std::array kLayerFigures = {
    LayerFigure{"max_over_mean", "load", &LayerMetrics::max_over_mean, Keep::kLargest},
    LayerFigure{"entropy", "router entropy", &LayerMetrics::entropy, Keep::kLeast},
    LayerFigure{"dead_experts", "dead experts", &LayerMetrics::dead_experts, Keep::kLargest},
    LayerFigure{"load_gini", "Gini", &LayerMetrics::load_gini, Keep::kLargest},
    LayerFigure{"load_cv", "CV", &LayerMetrics::load_cv, Keep::kLargest},
    LayerFigure{"dropped_share", "dropped share", &LayerMetrics::dropped_share, Keep::kLargest}};

Index number_of(const StepMetrics& step) {
  return step.step;
}

template <typename Value>
std::vector<double> column_of(const Steps& steps, Value value) {
  std::vector<double> values;
  for (const StepMetrics& step : steps) values.push_back(static_cast<double>(value(step)));
  return values;
}

/// Of each layer, by step; NaN for a dense layer, or a step in which a layer had no row.
std::vector<std::vector<double>> columns_of(const Steps& steps, const LayerFigure& figure) {
  std::size_t layers = 0;
  for (const StepMetrics& step : steps) layers = std::max(layers, step.layers.size());
  std::vector<std::vector<double>> columns;
  for (std::size_t layer = 0; layer < layers; ++layer)
    columns.push_back(column_of(steps, [&](const StepMetrics& step) {
      const bool known = layer < step.layers.size() && step.layers[layer].max_over_mean > 0;
      return known ? step.layers[layer].*figure.of : kNotValidated;
    }));
  return columns;
}

/// Whether it was measured, and not 0 throughout.
bool says_something(const std::vector<double>& values) {
  return std::ranges::any_of(values, [](double value) { return std::isfinite(value) && value != 0; });
}

Document lines_of(const Steps& steps) {
  double seconds = 0;
  const auto hours = column_of(steps, [&](const StepMetrics& step) {
    return (seconds += std::isfinite(step.seconds) ? step.seconds : 0) / 3600;
  });
  const auto tokens = column_of(steps, [](const StepMetrics& of) { return of.tokens_seen; });
  Document lines;
  lines.set("step", thinned(column_of(steps, number_of), kMostPoints, Keep::kLast));
  lines.set("tokens", thinned(tokens, kMostPoints, Keep::kLast));
  lines.set("hours", rounded(thinned(hours, kMostPoints, Keep::kLast), kDigits));
  for (const LineFigure& figure : kLines) {
    const std::vector<double> values = column_of(steps, figure.of);
    if (!says_something(values)) continue;
    const auto set = [&](const std::string& key, Keep keep) {
      lines.set(key, rounded(thinned(values, kMostPoints, keep), kDigits));
    };
    set(figure.key, Keep::kMean);
    if (values.size() <= kMostPoints) continue;
    set(std::string(figure.key) + "_least", Keep::kLeast);
    set(std::string(figure.key) + "_largest", Keep::kLargest);
  }
  return lines;
}

Document maps_of(const Steps& steps) {
  Document maps;
  for (const LayerFigure& figure : kLayerFigures) {
    const auto columns = columns_of(steps, figure);
    if (std::ranges::none_of(columns, says_something)) continue;
    const std::size_t most = std::clamp(kMostCells / columns.size(), kMostColumns / 4, kMostColumns);
    std::vector<Document> layers(columns.size());
    for (std::size_t layer = 0; layer < layers.size(); ++layer)
      layers[layer].set("values", rounded(thinned(columns[layer], most, figure.worst), kMapDigits));
    maps.set(figure.key, layers);
    maps.set("step", thinned(column_of(steps, number_of), most, Keep::kLeast));
  }
  return maps;
}

std::vector<Document> restarts_of(const RunRecord& run) {
  std::vector<Document> marks;
  for (const Restart& restart : run.restarts) {
    const std::string number = std::to_string(marks.size() + 1);
    Document& mark = marks.emplace_back();
    mark.set("step", restart.steps);
    mark.set("name", number);
    mark.set("text",
             "restart " + number + ", from step " + std::to_string(restart.from) + ": " + restart.reason);
  }
  return marks;
}

std::vector<Document> frames_of(const Steps& steps) {
  std::vector<Document> frames;
  for (const Collapse& collapse : collapses_of(steps)) {
    Document& frame = frames.emplace_back();
    frame.set("layer", collapse.begin.layer);
    frame.set("from", collapse.begin.step);
    frame.set("to", collapse.ended.value_or(steps.back().step));
  }
  return frames;
}

/// Mean seconds of a step.
std::map<std::string, double> phases_of(const Steps& steps) {
  std::map<std::string, double> means;
  for (const StepMetrics& step : steps)
    for (const auto& [name, seconds] : step.seconds_by_phase)
      if (std::isfinite(seconds) && seconds > 0) means[name] += seconds / static_cast<double>(steps.size());
  return means;
}

Document document_of(const RunRecord& run) {
  Document object, phases;
  for (const auto& [name, seconds] : phases_of(run.steps)) phases.set(name, seconds);
  std::vector<Document> rows;
  for (const auto& layer : run.last_rows) rows.emplace_back().set("values", layer);
  object.set("name", run.name);
  object.set("loss_unit", run.loss_unit);
  object.set("experts", run.num_experts);
  object.set("last_step", run.steps.empty() ? 0 : run.steps.back().step);
  object.set("lines", lines_of(run.steps));
  object.set("maps", maps_of(run.steps));
  object.set("last_rows", rows);
  object.set("phases", phases);
  object.set("restarts", restarts_of(run));
  object.set("collapses", frames_of(run.steps));
  return object;
}

}  // namespace

Document drawn_of(const std::vector<RunRecord>& runs) {
  std::vector<Document> objects;
  for (const RunRecord& run : runs) objects.push_back(document_of(run));
  Document drawn;
  drawn.set("runs", objects);
  return drawn;
}

Section steps_section(const std::vector<RunRecord>& runs) {
  constexpr std::size_t kParts = 4;
  Section section{.title = "Steps", .note = "means of each quarter, and of all steps", .wide = true};
  section.table = {.heading = {"", "1st quarter", "2nd", "3rd", "4th", "last", "lowest", "highest"},
                   .css_class = "numbers"};
  for (const LineFigure& figure : kLines)
    for (const RunRecord& run : runs) {
      std::vector<double> values = column_of(run.steps, figure.of);
      std::erase_if(values, [](double value) { return !std::isfinite(value); });
      if (!says_something(values)) continue;
      std::vector<double> cells = thinned(values, kParts, Keep::kMean);
      cells.resize(kParts, kNotValidated);
      for (const Keep keep : {Keep::kLast, Keep::kLeast, Keep::kLargest}) cells.push_back(kept(values, keep));
      std::vector<std::string>& row = section.table.rows.emplace_back();
      row.push_back(figure.name + (runs.size() == 1 ? "" : ", " + run.name));
      for (const double cell : cells) row.push_back(readable(cell, 4));
    }
  return section;
}

Section layers_section(const RunRecord& run) {
  Section section{.title = "Layers", .note = "the mean of all steps, and the worst of them", .wide = true};
  section.table = {.heading = {"layer"}, .css_class = "numbers"};
  for (const LayerFigure& figure : kLayerFigures) {
    const auto columns = columns_of(run.steps, figure);
    if (std::ranges::none_of(columns, says_something)) continue;
    section.table.heading.insert(section.table.heading.end(), {figure.name, "worst"});
    section.table.rows.resize(columns.size());
    for (std::size_t layer = 0; layer < columns.size(); ++layer) {
      std::vector<std::string>& row = section.table.rows[layer];
      if (row.empty()) row.push_back(std::to_string(layer));
      for (const Keep keep : {Keep::kMean, figure.worst}) row.push_back(readable(kept(columns[layer], keep)));
    }
  }
  return section;
}

Section phase_section(const std::vector<RunRecord>& runs) {
  std::vector<std::map<std::string, double>> phases;
  std::map<std::string, double> sums;
  for (const RunRecord& run : runs)
    for (const auto& [name, seconds] : phases.emplace_back(phases_of(run.steps))) sums[name] += seconds;
  if (sums.empty()) return {};
  std::vector<std::pair<double, std::string>> longest_first;
  for (const auto& [name, seconds] : sums) longest_first.emplace_back(seconds, name);
  std::ranges::sort(longest_first, std::ranges::greater());
  Section section{.title = "Time by phase", .note = "mean of all steps", .drawing = "phases"};
  section.table = {.heading = {""}, .css_class = "numbers", .last_is_sum = true};
  for (const auto& [seconds, name] : longest_first) section.table.rows.push_back({name});
  section.table.rows.push_back({"whole step"});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    double whole = 0;
    for (const auto& [name, seconds] : phases[i]) whole += seconds;
    section.table.heading.insert(section.table.heading.end(),
                                 {runs.size() == 1 ? "a step" : runs[i].name, "share"});
    for (auto& row : section.table.rows) {
      const double seconds = &row == &section.table.rows.back() ? whole : phases[i][row.front()];
      row.insert(row.end(), {readable_seconds(seconds), percent_text(seconds / whole)});
    }
  }
  return section;
}

}  // namespace moeloom
