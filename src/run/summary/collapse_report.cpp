#include "summary/collapse_report.hpp"

#include "base/text.hpp"

#include <algorithm>

namespace moeloom {

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

Section collapse_section(const std::vector<StepMetrics>& steps) {
  Section section{.title = "Collapse of routers",
                  .note = "few experts took the tokens, or experts stayed without a row",
                  .wide = true};
  section.table.heading = {"layer", "expert", "sign", "began at step", "ended at step"};
  for (const Collapse& collapse : collapses_of(steps)) {
    const CollapseEvent& begin = collapse.begin;
    section.table.rows.push_back({std::to_string(begin.layer), std::to_string(begin.expert),
                                  begin.sign == CollapseSign::kHotExpert
                                      ? "chosen by " + readable(100 * begin.share_of_tokens) + " % of tokens"
                                      : std::to_string(begin.dead_experts) + " experts without a row",
                                  std::to_string(begin.step),
                                  collapse.ended ? std::to_string(*collapse.ended) : "has not ended"});
  }
  return section;
}

}  // namespace moeloom
