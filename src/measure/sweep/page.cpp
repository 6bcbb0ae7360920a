#include "measure/sweep/page.hpp"

#include "base/text.hpp"
#include "report/html.hpp"
#include "report/page.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "sweep/answers.hpp"

namespace moeloom {
namespace {

using EpRows = std::vector<EpRow>;

bool same_comparison(const EpView& a, const EpView& b) {
  return a.mode == b.mode && a.scaling == b.scaling;
}

/// The time at which the last of its rows was measured.
std::string_view last_time(const EpView& view) {
  return std::ranges::max_element(view.rows, {}, &EpRow::measured_at)->measured_at;
}

/// Of each mode and scaling the first workload in the largest world, with the tokens and threads that were
/// measured last: what the drawings show in full.
std::vector<EpView> main_views(const std::vector<EpView>& views) {
  std::vector<EpView> main;
  for (const EpView& view : views) {
    const auto found = std::ranges::find_if(main, [&](const EpView& m) { return same_comparison(m, view); });
    if (found == main.end())
      main.push_back(view);
    else if (view.workload == found->workload &&
             std::pair(view.ranks, last_time(view)) >= std::pair(found->ranks, last_time(*found)))
      *found = view;
  }
  return main;
}

Table square_table(const GmmSquare& s) {
  const auto cell = [](const EpRow& r) {
    return readable(r.step_ms.median, 4) + " ms, " + readable(r.step_ms.p10, 4) + " to " +
           readable(r.step_ms.p90, 4);
  };
  return {.heading = {"", "ep = 1", "ep = " + std::to_string(s.loop_ep.ep)},
          .rows = {{"loop over experts", cell(s.loop), cell(s.loop_ep)},
                   {"grouped matmul", cell(s.grouped), cell(s.grouped_ep)}},
          .css_class = "numbers"};
}

Section answers(const EpView& view) {
  Section section{.title = view.title(),
                  .note = "medians of the slowest rank, p10 to p90; " +
                          readable(static_cast<double>(view.tokens), 7) +
                          " tokens, threads a rank: " + std::to_string(view.threads)};
  section.passages.push_back({"Which ep?", fastest_answer(view)});
  if (const auto square = gmm_square(view)) {
    section.passages.push_back(
        {"Is grouped matmul worth it without expert parallelism?", gmm_answer(*square)});
    section.table = square_table(*square);
  }
  return section;
}

/// For src/report/sweep_page.js: every row, and of which views all is drawn.
Document drawn_of(const EpRows& rows, const std::vector<EpView>& main) {
  std::vector<Document> views, points;
  for (const EpView& view : main) {
    views.push_back(document_of(view.rows.front()));
    views.back().set("title", view.title());
  }
  for (const EpRow& row : rows) points.push_back(document_of(row));
  for (std::vector<Document>* all : {&views, &points})
    for (Document& of_row : *all)
      for (const char* long_text : {"point", "settings", "model", "cpu", "gmm_reason", "dispatcher_reason"})
        of_row.erase(long_text);
  Document drawn;
  drawn.set("views", views);
  drawn.set("rows", points);
  return drawn;
}

Table skipped_table(const EpRows& rows) {
  Table table{.heading = {"point", "reason"}, .css_class = "points"};
  for (const EpRow& row : rows) table.rows.push_back({row.point, row.skipped});
  return table;
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

Table environment(const EpRows& rows, std::size_t others) {
  const auto of = [&](auto value) { return distinct(rows, value); };
  std::vector<std::vector<std::string>> facts = {
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
    facts.push_back({"not shown", std::to_string(others) +
                                      " points of other settings, which points.jsonl and points.csv hold"});
  return {.rows = facts, .css_class = "facts"};
}

std::vector<Card> cards(const EpRows& rows, const std::vector<EpView>& main) {
  const EpView& view = main.back();  // the training step if it was measured: modes are in this order
  const EpRow& best = fastest_row(view);
  std::set<Index> worlds;
  for (const EpRow& row : rows) worlds.insert(row.ranks);
  std::string ranks;
  for (const Index world : worlds) ranks += (ranks.empty() ? "" : ", ") + std::to_string(world);
  return {{"ep = " + std::to_string(best.ep), "the fastest: " + view.title()},
          {readable(best.tokens_per_s, 4), "tokens/s with it"},
          {milliseconds_text(1e-3 * best.step_ms.median, 4), "a " + view.mode + " with it"},
          {std::to_string(rows.size()), "points, each checked against ep = 1"},
          {ranks, ranks == "1" ? "rank" : "ranks"}};
}

}  // namespace

Report sweep_report(const std::vector<EpRow>& all, const std::string& settings) {
  Report report{.title = "moeloom bench ep"};
  EpRows rows, skipped;
  for (const EpRow& row : all)
    if (row.settings == settings) (row.skipped.empty() ? rows : skipped).push_back(row);
  const Section left_out{.title = "Skipped",
                         .note = "points that cannot run here",
                         .wide = true,
                         .table = skipped_table(skipped)};
  if (rows.empty()) {
    report.sections = {{.title = "No points", .passages = {{"", "None is measured yet."}}}, left_out};
    return report;
  }
  const std::vector<EpView> main = main_views(views_of(rows));
  report.cards = cards(rows, main);
  report.drawn = drawn_of(rows, main);
  for (const EpView& view : main) report.sections.push_back(answers(view));
  for (Section& section :
       std::vector<Section>{{.drawing = "bars"},
                            {.title = "All points", .wide = true, .table = table_of(rows)},
                            left_out,
                            {.title = "Where",
                            .wide = true,
                            .table = environment(rows, all.size() - rows.size() - skipped.size())}})
    report.sections.push_back(std::move(section));
  return report;
}

}  // namespace moeloom
