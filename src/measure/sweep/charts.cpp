#include "sweep/charts.hpp"

#include "report/html.hpp"
#include "report/svg_bar_chart.hpp"
#include "report/svg_chart.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr std::size_t kColours = 9;  // p0 .. p8 of the style sheet

template <typename Field>
bool differs(const EpView& view, Field field) {
  return std::ranges::any_of(view.rows,
                             [&](const EpRow& row) { return field(row) != field(view.rows.front()); });
}

/// What of a row's choices beside ep is worth a word in this view: a line is one of them at every ep.
std::string choice_of(const EpRow& row, const EpView& view) {
  std::string text = "gmm " + row.gmm;
  if (differs(view, [](const EpRow& r) { return r.dispatcher; })) text += ", " + row.dispatcher;
  if (differs(view, [](const EpRow& r) { return r.dtype; })) text += ", " + row.dtype;
  return text;
}

std::string colour(std::size_t i) {
  return "p" + std::to_string(i % kColours);
}

std::vector<Index> eps_of(const EpView& view) {
  std::vector<Index> eps;
  for (const EpRow& row : view.rows)
    if (eps.empty() || eps.back() != row.ep) eps.push_back(row.ep);
  return eps;
}

/// A chart over a few numbers, each a name below it.
LineChart chart_over(const std::string& x_label, const std::vector<Index>& choices,
                     const std::string& y_label) {
  LineChart chart{.x_label = x_label, .y_label = y_label, .from_zero = true, .x_names = {}, .series = {}};
  for (const Index choice : choices) chart.x_names.push_back(std::to_string(choice));
  return chart;
}

/// To the series of that name, which is made if there is none.
void add_point(LineChart& chart, const std::string& name, Index choice, double value) {
  auto series = std::ranges::find(chart.series, name, &Series::name);
  if (series == chart.series.end()) {
    chart.series.push_back({name, colour(chart.series.size()), {}, true});
    series = chart.series.end() - 1;
  }
  const auto place = std::ranges::find(chart.x_names, std::to_string(choice)) - chart.x_names.begin();
  series->points.push_back({static_cast<double>(place), value});
}

std::string chart_by_ep(const EpView& view, const std::string& y_label, double (*value)(const EpRow&)) {
  LineChart chart = chart_over("ep", eps_of(view), y_label);
  for (const EpRow& row : view.rows) add_point(chart, choice_of(row, view), row.ep, value(row));
  return svg_line_chart(chart);
}

/// What the issue of a step's phases asks to see, each phase in one of them.
struct PhaseGroup {
  const char* name;
  std::vector<Phase> phases;
};
const std::vector<PhaseGroup>& phase_groups() {
  static const std::vector<PhaseGroup> groups = {
      {"router and plan", {Phase::kRouter, Phase::kPlan}},
      {"dispatch", {Phase::kDispatch}},
      {"experts", {Phase::kExperts}},
      {"combine", {Phase::kCombine}},
      {"attention", {Phase::kAttention}},
      {"dense, embedding, loss", {Phase::kDense, Phase::kEmbed, Phase::kLoss}},
      {"reduce", {Phase::kReduce}},
      {"optimizer", {Phase::kOptimizer}},
      {"data and other", {Phase::kData, Phase::kOther}}};
  return groups;
}

std::string ms_text(double ms) {
  return milliseconds_text(1e-3 * ms);
}

/// One bar a row, all parts of which `parts` gives.
template <typename Parts>
std::string bars_of(const EpView& view, BarChart chart, Parts parts) {
  for (const EpRow& row : view.rows) chart.bars.push_back({label_of(row, view), parts(row)});
  return svg_bar_chart(chart);
}

const EpRow& fastest_at(const EpView& view, Index ep) {
  const EpRow* best = nullptr;
  for (const EpRow& row : view.rows)
    if (row.ep == ep && (best == nullptr || row.step_ms.median < best->step_ms.median)) best = &row;
  return *best;
}

std::string cell(const std::string& text) {
  return "<td class=\"number\">" + html_escaped(text) + "</td>";
}

}  // namespace

std::string label_of(const EpRow& row, const EpView& view) {
  const bool asked_for = row.gmm == name_of(GmmRequest::kNever) || row.gmm == name_of(GmmRequest::kForce);
  const char* outcome = asked_for ? "" : row.gmm_applied ? " (grouped)" : " (loop)";
  return "ep " + std::to_string(row.ep) + ", " + choice_of(row, view) + outcome;
}

std::string tokens_chart(const EpView& view) {
  return chart_by_ep(view, "tokens per second", [](const EpRow& row) { return row.tokens_per_s; });
}

std::string time_chart(const EpView& view) {
  return chart_by_ep(view, "ms a " + view.mode, [](const EpRow& row) { return row.step_ms.median; });
}

std::string phase_chart(const EpView& view) {
  BarChart chart{.name = "time by phase", .parts = {}, .text = ms_text, .bars = {}};
  for (const PhaseGroup& group : phase_groups()) chart.parts.emplace_back(group.name);
  return bars_of(view, chart, [](const EpRow& row) {
    std::vector<double> parts;
    for (const PhaseGroup& group : phase_groups()) {
      double sum = 0;
      for (const Phase phase : group.phases) sum += row.phase_ms[static_cast<std::size_t>(phase)];
      parts.push_back(sum);
    }
    return parts;
  });
}

std::string memory_chart(const EpView& view) {
  return bars_of(view, {.name = "memory of a rank", .parts = {"memory"}, .text = readable_bytes, .bars = {}},
                 [](const EpRow& row) { return std::vector{static_cast<double>(row.memory_bytes)}; });
}

std::string bytes_chart(const EpView& view) {
  return bars_of(
      view,
      {.name = "bytes of a step",
       .parts = {"messages: through MPI", "rows: a copy for each expert of another rank"},
       .stacked = false,
       .text = readable_bytes,
       .bars = {}},
      [](const EpRow& row) {
        return std::vector{static_cast<double>(row.message_bytes), static_cast<double>(row.row_bytes)};
      });
}

std::string load_chart(const EpView& view) {
  return bars_of(view,
                 {.name = "imbalance",
                  .parts = {"fullest expert", "fullest rank"},
                  .stacked = false,
                  .text = [](double load) { return readable(load) + "x"; },
                  .bars = {}},
                 [](const EpRow& row) {
                   return std::vector{row.expert_load, row.rank_load};
                 });
}

std::string scaling_chart(const std::vector<EpView>& views) {
  std::vector<EpView> by_ranks = views;
  std::ranges::sort(by_ranks, {}, &EpView::ranks);
  if (by_ranks.empty() || by_ranks.front().ranks == by_ranks.back().ranks) return "";
  std::vector<Index> worlds;
  for (const EpView& view : by_ranks) worlds.push_back(view.ranks);
  LineChart chart = chart_over("ranks", worlds, "tokens per second");
  for (const EpView& view : by_ranks)
    for (const Index ep : eps_of(view))
      add_point(chart, "ep " + std::to_string(ep), view.ranks, fastest_at(view, ep).tokens_per_s);
  return svg_line_chart(chart);
}

std::string workload_table(const std::vector<EpView>& views) {
  if (views.size() < 2) return "";
  std::string html =
      "<div class=\"scroll\"><table class=\"points\"><thead><tr><th>workload</th><th class=\"number\">ep</th>"
      "<th class=\"number\">ms</th><th class=\"number\">p10 to p90</th><th class=\"number\">fullest "
      "expert</th><th class=\"number\">fullest rank</th><th class=\"number\">Gini of experts</th><th "
      "class=\"number\">Gini of ranks</th></tr></thead>";
  for (const EpView& view : views)
    for (const Index ep : eps_of(view)) {
      const EpRow& row = fastest_at(view, ep);
      html += "<tr><td>" + html_escaped(view.workload) + "</td>" + cell(std::to_string(ep)) +
              cell(readable(row.step_ms.median, 4)) +
              cell(readable(row.step_ms.p10, 4) + " to " + readable(row.step_ms.p90, 4)) +
              cell(readable(row.expert_load)) + cell(readable(row.rank_load)) +
              cell(readable(row.expert_gini)) + cell(readable(row.rank_gini)) + "</tr>";
    }
  return html + "</table></div>";
}

}  // namespace moeloom
