#include "summary/report.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/statistics.hpp"
#include "report/html.hpp"
#include "report/report_page.hpp"
#include "report/svg_chart.hpp"
#include "report/svg_phase_bar.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "record/duration_text.hpp"
#include "summary/rebalance_report.hpp"
#include "summary/restart_report.hpp"
#include "summary/routing_report.hpp"

namespace moeloom {
namespace {

using Steps = std::vector<StepMetrics>;

std::vector<Point> points_of(const Steps& steps, double StepMetrics::*field) {
  std::vector<Point> points;
  for (const StepMetrics& step : steps) points.push_back({static_cast<double>(step.step), step.*field});
  return points;
}

std::vector<double> values_of(const Steps& steps, double StepMetrics::*field) {
  std::vector<double> values;
  for (const StepMetrics& step : steps) values.push_back(step.*field);
  return values;
}

std::vector<Point> validation_points(const Steps& steps) {
  std::vector<Point> points;
  for (const StepMetrics& step : steps)
    if (step.val_loss) points.push_back({static_cast<double>(step.step), *step.val_loss});
  return points;
}

/// Means over all steps.
std::map<std::string, double> phase_seconds(const Steps& steps) {
  std::map<std::string, double> means;
  for (const StepMetrics& step : steps)
    for (const auto& [name, seconds] : step.seconds_by_phase)
      if (std::isfinite(seconds) && seconds > 0) means[name] += seconds / static_cast<double>(steps.size());
  return means;
}

std::string loss_chart(const Steps& steps, const ReportInfo& info) {
  const std::vector<Point> loss = points_of(steps, &StepMetrics::loss);
  const auto reach = static_cast<Index>(loss.size() / 50);
  LineChart chart{.y_label = info.loss_unit, .series = {}, .marks = restart_marks(info.restarts)};
  if (reach == 0) {
    chart.series.push_back({"training", "main", loss, false});
  } else {
    chart.series.push_back({"training", "faint", thinned(loss, kMostPoints), false});
    chart.series.push_back({"smoothed", "main", thinned(smoothed(loss, reach), kMostPoints), false});
  }
  const std::vector<Point> validation = validation_points(steps);
  if (!validation.empty())
    chart.series.push_back({"validation", "value", thinned(validation, kMostPoints), true});
  return svg_line_chart(chart);
}

std::string rate_chart(const Steps& steps) {
  const auto rate = thinned(points_of(steps, &StepMetrics::tokens_per_s), kMostPoints);
  return svg_line_chart(
      {.y_label = "tokens per second", .from_zero = true, .series = {{"tokens/s", "main", rate}}});
}

std::string norm_chart(const Steps& steps) {
  const auto norm = thinned_to_peaks(points_of(steps, &StepMetrics::grad_norm), kMostPoints);
  return svg_line_chart(
      {.y_label = "2-norm", .from_zero = true, .series = {{"gradient norm", "main", norm}}});
}

std::string learning_rate_chart(const Steps& steps) {
  const auto rate = thinned(points_of(steps, &StepMetrics::learning_rate), kMostPoints);
  return svg_line_chart(
      {.y_label = "learning rate", .from_zero = true, .series = {{"learning rate", "main", rate}}});
}

std::string aux_chart(const Steps& steps) {
  const auto aux = thinned(points_of(steps, &StepMetrics::aux_loss), kMostPoints);
  if (std::ranges::all_of(aux, [](const Point& point) { return point.y == 0; })) return "";
  return svg_line_chart({.y_label = "auxiliary loss", .series = {{"aux loss", "main", aux}}});
}

std::string charts(const Steps& steps, const ReportInfo& info) {
  if (steps.empty()) return report_section("No steps", "The metrics hold no finished step.", " ", "wide");
  const std::string marked =
      info.restarts.empty() ? "" : "; dashed lines: where a job ended and the run was started again";
  return report_section("Loss", "each step, its moving average, and the held-out text" + marked,
                        loss_chart(steps, info)) +
         report_section("Speed", "tokens of all ranks per second of wall time", rate_chart(steps)) +
         routing_sections(steps, info) + rebalance_section(steps) +
         report_section("Time by phase", "mean of all steps", svg_phase_bar(phase_seconds(steps))) +
         report_section("Gradient norm", "before clipping; the largest of each stretch", norm_chart(steps)) +
         report_section("Learning rate", "warm-up, then half a cosine", learning_rate_chart(steps)) +
         report_section("Load-balancing loss", "mean of the micro-batches", aux_chart(steps));
}

std::string numbers(const Steps& steps, const ReportInfo& info) {
  double seconds = 0;
  Index memory = 0;
  for (const StepMetrics& step : steps) {
    if (std::isfinite(step.seconds)) seconds += step.seconds;
    memory = std::max(memory, step.rss_bytes);
  }
  std::string html = "<div class=\"numbers\">";
  if (info.validation_loss)
    html += number_card(readable(*info.validation_loss, 4), "validation loss, " + info.loss_unit, true);
  html += number_card(readable(last_loss(steps), 4), "training loss, " + info.loss_unit);
  html += number_card(readable(median(values_of(steps, &StepMetrics::tokens_per_s))), "tokens/s, median");
  if (info.time)
    html +=
        number_card(percent_text(info.time->share()), "of " + duration_text(info.time->wall) + " it trained");
  html += number_card(duration_text(seconds), "in " + readable(static_cast<double>(steps.size())) +
                                                  (steps.size() == 1 ? " step" : " steps"));
  if (!steps.empty() && steps.back().tokens_seen > 0)
    html += number_card(readable(static_cast<double>(steps.back().tokens_seen)), "tokens seen");
  if (memory > 0) html += number_card(readable_bytes(static_cast<double>(memory)), "peak memory of a rank");
  return html + "</div>\n";
}

std::string worded(const std::string& text, const ReportInfo& info) {
  return info.words ? info.words(text) : text;
}
std::vector<std::pair<std::string, std::string>> worded(
    std::vector<std::pair<std::string, std::string>> facts, const ReportInfo& info) {
  for (auto& [name, text] : facts) text = worded(text, info);
  return facts;
}

std::string decision_row(const ReportInfo& info, const std::string& id, bool applied,
                         const std::string& reason) {
  return "<tr><td>" + html_escaped(id) + "</td><td class=\"" +
         (applied ? "yes\">applied" : "no\">not applied") + "</td><td>" + html_escaped(worded(reason, info)) +
         "</td></tr>";
}

std::string kernels_table(const ReportInfo& info) {
  if (info.kernels.empty() && !info.gmm) return "";
  std::string html = "<table class=\"kernels\"><thead><tr><th>kernel</th><th></th><th>why</th></tr></thead>";
  for (const KernelReport& kernel : info.kernels)
    html += decision_row(info, kernel.id, kernel.applied, kernel.reason);
  if (info.gmm) {
    const std::string asked = info.gmm_request.empty() ? "" : " (" + info.gmm_request + ")";
    html += decision_row(info, "grouped matmul", info.gmm->apply, info.gmm->reason + asked);
  }
  return html + "</table>";
}

std::string sample(const ReportInfo& info) {
  if (info.sample.empty()) return "";
  return "<pre class=\"sample\"><b>" + html_escaped(info.prompt) + "</b>" + html_escaped(info.sample) +
         "</pre>";
}

std::string configuration(const ReportInfo& info) {
  if (info.configuration.empty()) return "";
  return "<pre class=\"config\">" + html_escaped(info.configuration) + "</pre>";
}

}  // namespace

double last_loss(const std::vector<StepMetrics>& steps) {
  const std::size_t count = std::clamp<std::size_t>(steps.size() / 10, 1, 50);
  double sum = 0;
  std::size_t finite = 0;
  for (std::size_t i = steps.size() - std::min(count, steps.size()); i < steps.size(); ++i) {
    if (!std::isfinite(steps[i].loss)) continue;
    sum += steps[i].loss;
    ++finite;
  }
  return finite == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(finite);
}

std::string report_html(const std::vector<StepMetrics>& steps, const ReportInfo& info) {
  return report_page(
      info.title, numbers(steps, info),
      charts(steps, info) + report_section("The run", "", facts_table(worded(info.facts, info))) +
          report_section("Time", "from the first start to this report", time_table(info.time)) +
          report_section("Restarts", restarts_note(info.restarts), restarts_table(info.restarts), "wide") +
          report_section("Sample", "the prompt, and what the model wrote after it", sample(info), "wide") +
          report_section("Kernels", "what was replaced, and why or why not", kernels_table(info), "wide") +
          report_section("Configuration", "", configuration(info), "wide"));
}

void write_report(const std::filesystem::path& path, const std::filesystem::path& metrics,
                  const ReportInfo& info) {
  replace_file(path, report_html(read_metrics(metrics), info));
}

}  // namespace moeloom
