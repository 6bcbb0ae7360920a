#include "summary/routing_report.hpp"

#include "report/html.hpp"
#include "report/report_page.hpp"
#include "report/svg_layer_map.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace moeloom {
namespace {

using Steps = std::vector<StepMetrics>;
using MapRows = std::vector<std::vector<Point>>;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

/// A figure by layer and step; nothing for a dense layer, or a step in which a layer had no row.
MapRows figure_of(const Steps& steps, double LayerMetrics::*figure) {
  MapRows layers;
  for (const StepMetrics& step : steps) layers.resize(std::max(layers.size(), step.layers.size()));
  for (const StepMetrics& step : steps) {
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      const bool known = layer < step.layers.size() && step.layers[layer].max_over_mean > 0;
      layers[layer].push_back(
          {static_cast<double>(step.step), known ? step.layers[layer].*figure : kNothing});
    }
  }
  return layers;
}

double largest_of(const MapRows& layers) {
  double largest = 0;
  for (const std::vector<Point>& layer : layers)
    for (const Point& point : layer)
      if (std::isfinite(point.y)) largest = std::max(largest, point.y);
  return largest;
}

std::string seen(double value, const std::string& unit = "") {
  return readable(value) + unit + " (most seen)";
}

std::vector<MapMark> marks_of(const Steps& steps) {
  std::vector<MapMark> marks;
  for (const Collapse& collapse : collapses_of(steps)) {
    const Index last = collapse.ended.value_or(steps.back().step);
    marks.push_back({.layer = collapse.begin.layer,
                     .from = static_cast<double>(collapse.begin.step),
                     .to = static_cast<double>(last),
                     .text = "layer " + std::to_string(collapse.begin.layer) + " collapsed, step " +
                             std::to_string(collapse.begin.step) + " to " + std::to_string(last)});
  }
  return marks;
}

std::string load_map(const Steps& steps) {
  const MapRows layers = figure_of(steps, &LayerMetrics::max_over_mean);
  const double largest = std::max(largest_of(layers), 1.0);
  return svg_layer_map({.name = "expert load by layer and step",
                        .pale = 1,
                        .solid = largest,
                        .pale_text = "1 (balanced)",
                        .solid_text = seen(largest),
                        .text = [](double y) { return "fullest expert " + readable(y) + " x the average"; },
                        .layers = layers,
                        .marks = marks_of(steps)});
}

/// Of each expert in the last step: its rows over the average one's.
MapRows last_loads(const std::vector<std::vector<Index>>& rows_per_expert) {
  std::size_t experts = 0;
  for (const std::vector<Index>& rows : rows_per_expert) experts = std::max(experts, rows.size());
  MapRows layers;
  for (const std::vector<Index>& rows : rows_per_expert) {
    const auto sum = static_cast<double>(std::reduce(rows.begin(), rows.end(), Index{0}));
    std::vector<Point> loads;
    for (std::size_t e = 0; e < experts; ++e) {
      const bool known = sum > 0 && e < rows.size();
      loads.push_back(
          {static_cast<double>(e),
           known ? static_cast<double>(rows[e]) * static_cast<double>(rows.size()) / sum : kNothing});
    }
    layers.push_back(thinned_to_peaks(loads, kMostMapColumns));
  }
  return layers;
}

std::string expert_map(const ReportInfo& info) {
  const MapRows layers = last_loads(info.last_rows);
  const double largest = largest_of(layers);
  return svg_layer_map({.name = "load of each expert in the last step, by layer",
                        .x_label = "expert",
                        .pale = 0,
                        .solid = largest,
                        .pale_text = "0 (no row)",
                        .solid_text = readable(largest) + " (fullest)",
                        .text = [](double y) { return readable(y) + " x the average expert's rows"; },
                        .layers = layers});
}

/// A router that is sure of its choice has little entropy: that is what is to be seen.
std::string entropy_map(const Steps& steps, const ReportInfo& info) {
  const MapRows layers = figure_of(steps, &LayerMetrics::entropy);
  const double most = std::max(largest_of(layers), info.num_experts > 0 ? std::log(info.num_experts) : 0);
  if (largest_of(layers) == 0) return "";
  return svg_layer_map({.name = "router entropy by layer and step",
                        .pale = most,
                        .solid = 0,
                        .pale_text = readable(most) + " (all experts alike)",
                        .solid_text = "0 (one expert)",
                        .text = [](double y) { return readable(y) + " nats"; },
                        .layers = layers});
}

/// A figure that is 0 where all is well.
std::string map_from_zero(const Steps& steps, double LayerMetrics::*figure, const std::string& name,
                          const std::string& unit, double scale = 1) {
  MapRows layers = figure_of(steps, figure);
  for (std::vector<Point>& layer : layers)
    for (Point& point : layer) point.y *= scale;
  const double largest = largest_of(layers);
  if (largest == 0) return "";
  return svg_layer_map({.name = name + " by layer and step",
                        .pale = 0,
                        .solid = largest,
                        .pale_text = "0",
                        .solid_text = seen(largest, unit),
                        .text = [&](double y) { return name + " " + readable(y) + unit; },
                        .layers = layers});
}

std::string row_of(const Collapse& collapse) {
  const CollapseEvent& begin = collapse.begin;
  const std::string sign = begin.sign == CollapseSign::kHotExpert
                               ? "chosen by " + readable(100 * begin.share_of_tokens) + " % of tokens"
                               : std::to_string(begin.dead_experts) + " experts without a row";
  const std::string cells[] = {std::to_string(begin.layer), std::to_string(begin.expert), sign,
                               std::to_string(begin.step),
                               collapse.ended ? std::to_string(*collapse.ended) : "has not ended"};
  std::string html = "<tr>";
  for (const std::string& cell : cells) html += "<td>" + html_escaped(cell) + "</td>";
  return html + "</tr>";
}

std::string collapse_table(const Steps& steps) {
  const std::vector<Collapse> collapses = collapses_of(steps);
  if (collapses.empty()) return "";
  std::string html =
      "<table class=\"collapses\"><thead><tr><th>layer</th><th>expert</th><th>sign</th><th>began at "
      "step</th><th>ended at step</th></tr></thead>";
  for (const Collapse& collapse : collapses) html += row_of(collapse);
  return html + "</table>";
}

}  // namespace

std::vector<Collapse> collapses_of(const std::vector<StepMetrics>& steps) {
  std::vector<Collapse> collapses;
  for (const StepMetrics& step : steps) {
    for (const CollapseEvent& event : step.collapse) {
      if (event.begins) {
        collapses.push_back({event, std::nullopt});
        continue;
      }
      const auto open = std::ranges::find_if(collapses, [&](const Collapse& collapse) {
        return !collapse.ended && collapse.begin.layer == event.layer;
      });
      if (open != collapses.end()) {
        open->ended = event.step;
        continue;
      }
      collapses.push_back({event, event.step});
      collapses.back().begin.step = event.since;
    }
  }
  return collapses;
}

std::string routing_sections(const std::vector<StepMetrics>& steps, const ReportInfo& info) {
  return report_section("Collapse of routers", "few experts took the tokens, or experts stayed without a row",
                        collapse_table(steps), "wide") +
         report_section("Expert load",
                        "rows of the fullest expert over those of the average one; a frame: a collapse",
                        load_map(steps)) +
         report_section("Experts in the last step", "rows of each over those of the average one",
                        expert_map(info)) +
         report_section("Router entropy", "of a token's scores, in nats: dark is sure of one expert",
                        entropy_map(steps, info)) +
         report_section("Dead experts", "experts of a layer without a row in a step",
                        map_from_zero(steps, &LayerMetrics::dead_experts, "experts without a row:", "")) +
         report_section("Load, Gini", "0: all experts have as many rows; 1: one has all",
                        map_from_zero(steps, &LayerMetrics::load_gini, "Gini", "")) +
         report_section("Load, coefficient of variation",
                        "standard deviation of the experts' rows over their mean",
                        map_from_zero(steps, &LayerMetrics::load_cv, "CV", "")) +
         report_section("Dropped slots", "choices that the experts' capacity left without a row",
                        map_from_zero(steps, &LayerMetrics::dropped_share, "dropped", " %", 100));
}

}  // namespace moeloom
