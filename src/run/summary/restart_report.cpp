#include "summary/restart_report.hpp"

#include "base/text.hpp"
#include "report/html.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "record/duration_text.hpp"

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

std::string row(const std::string& name, double seconds, double wall, const char* css_class = "") {
  return "<tr" + std::string(css_class) + "><td>" + name + "</td><td>" + readable_seconds(seconds) +
         "</td><td>" + percent_text(wall > 0 ? seconds / wall : 0) + "</td></tr>";
}

}  // namespace

std::string percent_text(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * share);
  return text.data();
}

std::vector<Mark> restart_marks(const std::vector<Restart>& restarts) {
  std::vector<Mark> marks;
  for (std::size_t i = 0; i < restarts.size(); ++i)
    marks.push_back({static_cast<double>(restarts[i].steps), std::to_string(i + 1),
                     "restart " + std::to_string(i + 1) + ", from step " + number(restarts[i].from) + "\n" +
                         restarts[i].reason});
  std::ranges::stable_sort(marks, {}, &Mark::x);
  return marks;
}

std::string restarts_note(const std::vector<Restart>& restarts) {
  if (restarts.size() <= kMostRows) return "numbered as on the loss curve";
  return "numbered as on the loss curve; the last " + std::to_string(kMostRows) + " of " +
         std::to_string(restarts.size());
}

std::string restarts_table(const std::vector<Restart>& restarts) {
  if (restarts.empty()) return "";
  std::string html =
      "<div class=\"scroll\"><table><thead><tr><th></th><th>after</th><th>what happened</th><th>went on "
      "from</th>"
      "<th>done again</th></tr></thead>";
  const std::size_t first = restarts.size() - std::min(restarts.size(), kMostRows);
  for (std::size_t i = first; i < restarts.size(); ++i) {
    const Restart& restart = restarts[i];
    html += "<tr><td>" + std::to_string(i + 1) + "</td><td>" + number(restart.steps) + " steps</td><td>" +
            html_escaped(restart.reason) + "</td><td>step " + number(restart.from) + "</td><td>" +
            again_text(restart) + "</td></tr>";
  }
  return html + "</table></div>";
}

std::string time_table(const std::optional<TimeUse>& time) {
  if (!time) return "";
  return "<table class=\"phases\"><thead><tr><th></th><th>time</th><th>share</th></tr></thead>" +
         row("steps that count", time->trained, time->wall) +
         row("steps done again", time->again, time->wall) +
         row("starting and loading", time->starting, time->wall) +
         row("steps held by saves", time->saving, time->wall) +
         row("between a job's end and the next start", time->away, time->wall) +
         row("validations, the end, and until an end was noticed", time->rest(), time->wall) +
         row("in all", time->wall, time->wall, " class=\"sum\"") + "</table>";
}

}  // namespace moeloom
