#include "sweep/answers.hpp"

#include "base/text.hpp"
#include "report/html.hpp"

#include <algorithm>

namespace moeloom {
namespace {

std::string ms(const EpRow& row) {
  return milliseconds_text(1e-3 * row.step_ms.median, 4);
}

std::string times(double ratio) {
  return readable(ratio, 3) + " times";
}

bool overlap(const EpRow& a, const EpRow& b) {
  return a.step_ms.p10 <= b.step_ms.p90 && b.step_ms.p10 <= a.step_ms.p90;
}

std::string range(const EpRow& row) {
  return readable(row.step_ms.p10, 4) + " to " + readable(row.step_ms.p90, 4) + " ms";
}

std::string choice_of(const EpRow& row) {
  return "ep = " + std::to_string(row.ep) + ", gmm " + row.gmm + ", dispatcher " + row.dispatcher_used +
         (row.dtype_used == "fp32" ? "" : ", " + row.dtype_used);
}

/// "grouped takes 9 ms, the loop 12 ms: 1.33 times as fast", or that they cannot be told apart.
std::string comparison(const EpRow& loop, const EpRow& grouped) {
  std::string text = "at ep = " + std::to_string(loop.ep) + " a " + loop.mode + " takes " + ms(grouped) +
                     " grouped and " + ms(loop) + " as a loop, ";
  if (overlap(loop, grouped))
    return text + "which is within their noise (" + range(grouped) + " against " + range(loop) + ")";
  const double ratio = loop.step_ms.median / grouped.step_ms.median;
  return text + (ratio >= 1 ? "grouped " + times(ratio) : "the loop " + times(1 / ratio)) + " as fast";
}

const EpRow* find_row(const EpView& view, Index ep, const std::string& gmm, const std::string& dispatcher) {
  const auto found = std::ranges::find_if(view.rows, [&](const EpRow& row) {
    return row.ep == ep && row.gmm == gmm && row.dispatcher == dispatcher && row.dtype == "fp32";
  });
  return found == view.rows.end() ? nullptr : &*found;
}

}  // namespace

std::string EpView::title() const {
  const std::string what = mode == "step" ? "Training step" : "MoE layer, " + workload;
  return what + ", " + scaling + " scaling, " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

std::vector<EpView> views_of(const std::vector<EpRow>& rows) {
  std::vector<EpView> views;
  for (const EpRow& row : rows) {
    const auto same = [&](const EpView& view) {
      return view.mode == row.mode && view.scaling == row.scaling && view.workload == row.workload &&
             view.ranks == row.ranks && view.threads == row.threads && view.tokens == row.tokens;
    };
    auto found = std::ranges::find_if(views, same);
    if (found == views.end()) {
      views.push_back({row.mode, row.scaling, row.workload, row.ranks, row.threads, row.tokens, {}});
      found = views.end() - 1;
    }
    found->rows.push_back(row);
  }
  for (EpView& view : views) std::ranges::stable_sort(view.rows, {}, &EpRow::ep);
  return views;
}

std::optional<GmmSquare> gmm_square(const EpView& view) {
  const std::string loop_word(name_of(GmmRequest::kNever)), grouped_word(name_of(GmmRequest::kForce));
  const Index most = std::ranges::max(view.rows, {}, &EpRow::ep).ep;
  if (most == 1) return std::nullopt;
  for (const EpRow& row : view.rows) {
    const EpRow* loop = find_row(view, 1, loop_word, row.dispatcher);
    const EpRow* grouped = find_row(view, 1, grouped_word, row.dispatcher);
    const EpRow* loop_ep = find_row(view, most, loop_word, row.dispatcher);
    const EpRow* grouped_ep = find_row(view, most, grouped_word, row.dispatcher);
    if (loop && grouped && loop_ep && grouped_ep) return GmmSquare{*loop, *grouped, *loop_ep, *grouped_ep};
  }
  return std::nullopt;
}

std::string gmm_answer(const GmmSquare& s) {
  const bool noise = overlap(s.loop, s.grouped);
  const double ratio = s.loop.step_ms.median / s.grouped.step_ms.median;
  const std::string verdict = noise ? "Cannot be told" : ratio > 1 ? "Yes" : "No";
  const std::string at_one = comparison(s.loop, s.grouped);
  std::string text = verdict + ": " + at_one + "; " + comparison(s.loop_ep, s.grouped_ep) + ".";
  if (noise) return text;
  return text + " Upstream's rule, grouped only if ep > 1, " +
         (ratio > 1 ? "would give up that factor of " + readable(ratio, 3) + " at ep = 1."
                    : "is right to run the loop at ep = 1.");
}

const EpRow& fastest_row(const EpView& view) {
  return *std::ranges::min_element(view.rows, {}, [](const EpRow& row) { return row.step_ms.median; });
}

std::string fastest_answer(const EpView& view) {
  const EpRow& best = fastest_row(view);
  std::string text =
      choice_of(best) + " is the fastest: " + ms(best) + ", " + readable(best.tokens_per_s, 4) + " tokens/s";
  EpView without;
  for (const EpRow& row : view.rows)
    if (row.ep == 1) without.rows.push_back(row);
  if (best.ep == 1 || without.rows.empty()) return text + ".";
  const EpRow& best_without = fastest_row(without);
  return text + ", " + times(best_without.step_ms.median / best.step_ms.median) + " as fast as the best at " +
         choice_of(best_without) + " (" + ms(best_without) + ").";
}

}  // namespace moeloom
