#include "measure/sweep/page.hpp"

#include "report/html.hpp"
#include "report/report_page.hpp"

#include <algorithm>
#include <set>

#include "sweep/charts.hpp"

namespace moeloom {
namespace {

using EpRows = std::vector<EpRow>;

bool same_comparison(const EpView& a, const EpView& b) {
  return a.mode == b.mode && a.scaling == b.scaling;
}

/// Of each mode and scaling the first workload in the largest world: what the drawings show in full.
std::vector<EpView> main_views(const std::vector<EpView>& views) {
  std::vector<EpView> main;
  for (const EpView& view : views) {
    const auto found = std::ranges::find_if(main, [&](const EpView& m) { return same_comparison(m, view); });
    if (found == main.end())
      main.push_back(view);
    else if (view.workload == found->workload && view.ranks > found->ranks)
      *found = view;
  }
  return main;
}

std::vector<EpView> views_where(const std::vector<EpView>& views, const auto& holds) {
  std::vector<EpView> found;
  std::ranges::copy_if(views, std::back_inserter(found), holds);
  return found;
}

std::string answer(const std::string& question, const std::string& text) {
  return "<p class=\"answer\"><b>" + html_escaped(question) + "</b> " + html_escaped(text) + "</p>";
}

std::string square_table(const GmmSquare& s) {
  const auto row = [](const std::string& name, const EpRow& one, const EpRow& many) {
    const auto cell = [](const EpRow& r) {
      return "<td class=\"number\">" + readable(r.step_ms.median, 4) + " ms<span class=\"range\">" +
             readable(r.step_ms.p10, 4) + " to " + readable(r.step_ms.p90, 4) + "</span></td>";
    };
    return "<tr><td>" + name + "</td>" + cell(one) + cell(many) + "</tr>";
  };
  return "<div class=\"scroll\"><table class=\"points\"><thead><tr><th></th><th class=\"number\">ep = 1</th>"
         "<th class=\"number\">ep = " +
         std::to_string(s.loop_ep.ep) + "</th></tr></thead>" + row("loop over experts", s.loop, s.loop_ep) +
         row("grouped matmul", s.grouped, s.grouped_ep) + "</table></div>";
}

std::string answers(const EpView& view) {
  std::string html = answer("Which ep?", fastest_answer(view));
  if (const auto square = gmm_square(view))
    html += answer("Is grouped matmul worth it without expert parallelism?", gmm_answer(*square)) +
            square_table(*square);
  return report_section(view.title(), "medians of the slowest rank, p10 to p90", html);
}

std::string drawings(const EpView& view, const std::vector<EpView>& all) {
  const std::string title = ": " + view.title();
  const auto in_all_worlds = views_where(
      all, [&](const EpView& v) { return same_comparison(v, view) && v.workload == view.workload; });
  const auto all_workloads =
      views_where(all, [&](const EpView& v) { return same_comparison(v, view) && v.ranks == view.ranks; });
  return report_section("Tokens per second" + title, "all ranks, by ep", tokens_chart(view)) +
         report_section("Time" + title, "the slowest rank's median, by ep", time_chart(view)) +
         report_section("Time by phase" + title, "mean of samples and ranks", phase_chart(view)) +
         report_section("Memory of a rank" + title,
                        "what the point added, after its warm-up; the largest rank, of shared pages its own",
                        memory_chart(view)) +
         report_section("Bytes of a step" + title,
                        "all ranks; rows through a node's shared memory are no messages", bytes_chart(view)) +
         report_section("Imbalance" + title, "rows over the mean, of experts and of ranks; mean of samples",
                        load_chart(view)) +
         report_section("More ranks: " + view.mode + ", " + view.scaling + " scaling",
                        "tokens per second by ranks; the fastest row of each ep",
                        scaling_chart(in_all_worlds)) +
         report_section(
             "Routings" + title,
             "the fastest row of each ep; rows of the fullest expert and rank over the mean, and the "
             "Gini coefficient of rows: 0 even, towards 1 all on one",
             workload_table(all_workloads), "wide");
}

std::string points_table(const EpRows& rows) {
  std::string html = "<div class=\"scroll\"><table class=\"points\"><thead><tr>";
  for (const char* name : {"mode",          "scaling",
                           "routing",       "ranks",
                           "dp x ep",       "gmm",
                           "dispatcher",    "dtype",
                           "tokens",        "ms",
                           "p10 to p90",    "tokens/s",
                           "memory",        "messages",
                           "rows",          "fullest expert",
                           "fullest rank",  "Gini of experts",
                           "Gini of ranks", "error",
                           "allowed",       "samples"})
    html += "<th>" + std::string(name) + "</th>";
  html += "</tr></thead>";
  for (const EpRow& row : rows) {
    html += "<tr>";
    for (const std::string& text : {row.mode,
                                    row.scaling,
                                    row.workload,
                                    std::to_string(row.ranks),
                                    std::to_string(row.dp) + " x " + std::to_string(row.ep),
                                    row.gmm + (row.gmm_applied ? ": grouped" : ": loop"),
                                    row.dispatcher + ": " + row.dispatcher_used,
                                    row.dtype_used,
                                    readable(static_cast<double>(row.tokens), 7),
                                    readable(row.step_ms.median, 4),
                                    readable(row.step_ms.p10, 4) + " to " + readable(row.step_ms.p90, 4),
                                    readable(row.tokens_per_s, 4),
                                    readable_bytes(static_cast<double>(row.memory_bytes)),
                                    readable_bytes(static_cast<double>(row.message_bytes)),
                                    readable_bytes(static_cast<double>(row.row_bytes)),
                                    readable(row.expert_load),
                                    readable(row.rank_load),
                                    readable(row.expert_gini),
                                    readable(row.rank_gini),
                                    readable(row.error),
                                    readable(row.tolerance),
                                    std::to_string(row.samples)})
      html += "<td>" + html_escaped(text) + "</td>";
    html += "</tr>";
  }
  return html + "</table></div>";
}

/// Empty without any.
std::string skipped_table(const EpRows& rows) {
  if (rows.empty()) return "";
  std::string html =
      "<div class=\"scroll\"><table class=\"points\"><thead><tr><th>point</th><th>reason</th></tr></thead>";
  for (const EpRow& row : rows)
    html += "<tr><td>" + html_escaped(row.point) + "</td><td>" + html_escaped(row.skipped) + "</td></tr>";
  return html + "</table></div>";
}

/// The different values of a field, in order.
template <typename Value>
std::string distinct(const EpRows& rows, Value value) {
  std::vector<std::string> seen;
  for (const EpRow& row : rows)
    if (const std::string text = value(row); std::ranges::find(seen, text) == seen.end())
      seen.push_back(text);
  std::string joined;
  for (const std::string& text : seen) joined += (joined.empty() ? "" : "; ") + text;
  return joined;
}

std::string environment(const EpRows& rows, std::size_t others) {
  const auto of = [&](auto value) { return distinct(rows, value); };
  std::vector<std::pair<std::string, std::string>> facts = {
      {"model", of([](const EpRow& r) { return r.model; })},
      {"CPU", of([](const EpRow& r) { return r.cpu + ", " + std::to_string(r.processors) + " processors"; })},
      {"nodes", of([](const EpRow& r) { return std::to_string(r.nodes); })},
      {"threads", of([](const EpRow& r) {
         return std::to_string(r.threads) + " a rank on " + std::to_string(r.ranks) +
                (r.ranks == 1 ? " rank" : " ranks");
       })},
      {"MPI", of([](const EpRow& r) { return r.mpi; })},
      {"BLAS", of([](const EpRow& r) { return r.blas; })},
      {"moeloom", of([](const EpRow& r) { return r.version + ", commit " + r.commit; })},
      {"measured", std::ranges::min(rows, {}, &EpRow::measured_at).measured_at + " to " +
                       std::ranges::max(rows, {}, &EpRow::measured_at).measured_at}};
  if (others > 0)
    facts.emplace_back("not shown", std::to_string(others) +
                                        " points of other settings, which points.jsonl and points.csv hold");
  return facts_table(facts);
}

std::string cards(const EpRows& rows, const std::vector<EpView>& main) {
  const EpView& view = main.back();  // the training step if it was measured: modes are in this order
  const EpRow& best = fastest_row(view);
  std::set<Index> worlds;
  for (const EpRow& row : rows) worlds.insert(row.ranks);
  std::string ranks;
  for (const Index world : worlds) ranks += (ranks.empty() ? "" : ", ") + std::to_string(world);
  return "<div class=\"numbers\">" +
         number_card("ep = " + std::to_string(best.ep), "the fastest: " + view.title(), true) +
         number_card(readable(best.tokens_per_s, 4), "tokens/s with it") +
         number_card(milliseconds_text(1e-3 * best.step_ms.median, 4), "a " + view.mode + " with it") +
         number_card(std::to_string(rows.size()), "points, each checked against ep = 1") +
         number_card(ranks, ranks == "1" ? "rank" : "ranks") + "</div>\n";
}

}  // namespace

std::string sweep_page(const std::vector<EpRow>& all, const std::string& settings) {
  const std::string title = "moeloom bench ep";
  EpRows rows, skipped;
  for (const EpRow& row : all)
    if (row.settings == settings) (row.skipped.empty() ? rows : skipped).push_back(row);
  const std::string left_out =
      report_section("Skipped", "points that cannot run here", skipped_table(skipped), "wide");
  if (rows.empty())
    return report_page(title, "", report_section("No points", "", "<p>None is measured yet.</p>") + left_out);
  const std::vector<EpView> views = views_of(rows);
  const std::vector<EpView> main = main_views(views);
  std::string sections;
  for (const EpView& view : main) sections += answers(view);
  for (const EpView& view : main) sections += drawings(view, views);
  sections += report_section("All points", "", points_table(rows), "wide") + left_out;
  sections +=
      report_section("Where", "", environment(rows, all.size() - rows.size() - skipped.size()), "wide");
  return report_page(title, cards(rows, main), sections);
}

}  // namespace moeloom
