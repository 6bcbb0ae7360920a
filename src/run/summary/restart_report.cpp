#include "summary/restart_report.hpp"

#include "base/text.hpp"
#include "report/html.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace moeloom {
namespace {

constexpr std::size_t kMostRows = 100;

std::string number(Index n) {
  return readable(static_cast<double>(n), 7);
}

std::string again_text(const Restart& restart) {
  const Index steps = std::max<Index>(restart.steps - restart.from, 0);
  return number(steps) + (steps == 1 ? " step" : " steps") + ", " + readable_seconds(restart.lost_seconds);
}

}  // namespace

std::string percent_text(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * share);
  return text.data();
}

Section restarts_section(const std::vector<Restart>& restarts) {
  Section section{.title = "Restarts", .note = "numbered as on the lines", .wide = true};
  section.table.heading = {"", "after", "what happened", "went on from", "done again"};
  if (restarts.size() > kMostRows)
    section.note += "; the last " + std::to_string(kMostRows) + " of " + std::to_string(restarts.size());
  for (std::size_t i = restarts.size() - std::min(restarts.size(), kMostRows); i < restarts.size(); ++i)
    section.table.rows.push_back({std::to_string(i + 1), number(restarts[i].steps) + " steps",
                                  restarts[i].reason, "step " + number(restarts[i].from),
                                  again_text(restarts[i])});
  return section;
}

Section time_section(const std::optional<TimeUse>& time) {
  Section section{.title = "Time", .note = "from the first start to this report"};
  if (!time) return section;
  section.table = {.heading = {"", "time", "share"}, .css_class = "numbers", .last_is_sum = true};
  const auto add = [&](const char* name, double seconds) {
    section.table.rows.push_back(
        {name, readable_seconds(seconds), percent_text(time->wall > 0 ? seconds / time->wall : 0)});
  };
  add("steps that count", time->trained);
  add("steps done again", time->again);
  add("starting and loading", time->starting);
  add("steps held by saves", time->saving);
  add("between a job's end and the next start", time->away);
  add("validations, the end, and until an end was noticed", time->rest());
  add("in all", time->wall);
  return section;
}

}  // namespace moeloom
