#include "summary/report.hpp"

#include "base/text.hpp"
#include "io/text_file.hpp"
#include "moeloom/base/statistics.hpp"
#include "report/html.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <limits>

#include "record/duration_text.hpp"
#include "summary/collapse_report.hpp"
#include "summary/rebalance_report.hpp"
#include "summary/restart_report.hpp"
#include "summary/run_data.hpp"

namespace moeloom {
namespace {

using Steps = std::vector<StepMetrics>;

constexpr Index kReloadSeconds = 30;

std::optional<double> validation_loss(const Steps& steps, const ReportInfo& info) {
  if (info.validation_loss) return info.validation_loss;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    if (step->val_loss) return step->val_loss;
  return std::nullopt;
}

std::vector<Card> cards(const Steps& steps, const ReportInfo& info) {
  double seconds = 0;
  Index memory = 0;
  std::vector<double> rates;
  for (const StepMetrics& step : steps) {
    if (std::isfinite(step.seconds)) seconds += step.seconds;
    memory = std::max(memory, step.rss_bytes);
    rates.push_back(step.tokens_per_s);
  }
  std::vector<Card> cards;
  if (const auto loss = validation_loss(steps, info))
    cards.push_back({readable(*loss, 4), "validation loss, " + info.loss_unit});
  cards.push_back({readable(last_loss(steps), 4), "training loss, " + info.loss_unit});
  cards.push_back({readable(median(rates)), "tokens/s, median"});
  if (info.time)
    cards.push_back(
        {percent_text(info.time->share()), "of " + duration_text(info.time->wall) + " it trained"});
  cards.push_back({duration_text(seconds), "in " + readable(static_cast<double>(steps.size())) +
                                               (steps.size() == 1 ? " step" : " steps")});
  if (!steps.empty() && steps.back().tokens_seen > 0)
    cards.push_back({readable(static_cast<double>(steps.back().tokens_seen)), "tokens seen"});
  if (memory > 0) cards.push_back({readable_bytes(static_cast<double>(memory)), "peak memory of a rank"});
  return cards;
}

std::string worded(const std::string& text, const ReportInfo& info) {
  return info.words ? info.words(text) : text;
}

Table facts_table(const ReportInfo& info) {
  Table table{.css_class = "facts"};
  for (const auto& [name, text] : info.facts) table.rows.push_back({name, worded(text, info)});
  return table;
}

Table kernels_table(const ReportInfo& info) {
  Table table{.heading = {"kernel", "", "why"}, .css_class = "kernels"};
  const auto add = [&](const std::string& id, bool applied, const std::string& reason) {
    table.rows.push_back({id, applied ? "applied" : "not applied", worded(reason, info)});
  };
  for (const KernelReport& kernel : info.kernels) add(kernel.id, kernel.applied, kernel.reason);
  if (info.gmm)
    add("grouped matmul", info.gmm->apply,
        info.gmm->reason + (info.gmm_request.empty() ? "" : " (" + info.gmm_request + ")"));
  return table;
}

/// None where there is no text.
std::vector<Passage> verbatim(const std::string& lead, const std::string& text) {
  if (text.empty()) return {};
  return {{lead, text, true}};
}

std::string status(const Steps& steps, const ReportInfo& info) {
  if (info.goes_on_to == 0) return "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 64> time{};
  std::strftime(time.data(), time.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  const std::string reached = std::to_string(steps.empty() ? 0 : steps.back().step + 1) + " of " +
                              std::to_string(info.goes_on_to) + " steps, " + time.data();
  if (info.stopped) return "The run was stopped: " + reached + worded(". `resume` goes on with it.", info);
  return "The run goes on: " + reached +
         ". The page is written again at a validation, and loads itself again.";
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

Report report_of(const std::vector<StepMetrics>& steps, const ReportInfo& info) {
  const std::vector<RunRecord> run = {{.name = info.title,
                                       .steps = steps,
                                       .restarts = info.restarts,
                                       .loss_unit = info.loss_unit,
                                       .num_experts = info.num_experts,
                                       .last_rows = info.last_rows}};
  Report report{.title = info.title,
                .status = status(steps, info),
                .has_ended = info.goes_on_to == 0,
                .reload_seconds = info.goes_on_to > 0 && !info.stopped ? kReloadSeconds : 0,
                .cards = cards(steps, info),
                .drawn = drawn_of(run)};
  report.sections = {
      {.drawing = "lines"},
      collapse_section(steps),
      {.drawing = "maps"},
      rebalance_section(steps),
      phase_section(run),
      time_section(info.time),
      {.title = "The run", .table = facts_table(info)},
      {.title = "Kernels", .note = "what was replaced, and why or why not", .table = kernels_table(info)},
      steps_section(run),
      layers_section(run.front()),
      restarts_section(info.restarts),
      {.title = "Sample",
       .note = "the prompt, and what the model wrote after it",
       .wide = true,
       .passages = verbatim(info.prompt, info.sample)},
      {.title = "Configuration", .wide = true, .passages = verbatim("", info.configuration)}};
  if (steps.empty())
    report.sections.front() = {.title = "No steps", .passages = {{"", "The metrics hold no finished step."}}};
  return report;
}

void write_report(const std::filesystem::path& path, const std::filesystem::path& metrics,
                  const ReportInfo& info) {
  replace_file(path, page_html(report_of(read_metrics(metrics), info)));
}

}  // namespace moeloom
