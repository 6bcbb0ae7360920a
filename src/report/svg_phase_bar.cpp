#include "report/svg_phase_bar.hpp"

#include "report/html.hpp"
#include "report/svg.hpp"

#include <algorithm>
#include <vector>

namespace moeloom {
namespace {

constexpr std::size_t kColours = 8;  // classes p0 .. p7 of the style sheet
constexpr double kPhaseHeight = 34;

struct PhaseTime {
  std::string name;
  double seconds = 0;  // a step
};

std::vector<PhaseTime> longest_first(const std::map<std::string, double>& seconds) {
  std::vector<PhaseTime> phases;
  for (const auto& [name, of_phase] : seconds)
    if (of_phase > 0) phases.push_back({name, of_phase});
  std::ranges::stable_sort(phases, std::ranges::greater(), &PhaseTime::seconds);
  return phases;
}

/// No more phases than colours: the shortest become one.
std::vector<PhaseTime> gathered(std::vector<PhaseTime> phases) {
  if (phases.size() <= kColours) return phases;
  PhaseTime rest{"all others", 0};
  for (std::size_t i = kColours - 1; i < phases.size(); ++i) rest.seconds += phases[i].seconds;
  phases.resize(kColours - 1);
  phases.push_back(rest);
  return phases;
}

double total_seconds(const std::vector<PhaseTime>& phases) {
  double total = 0;
  for (const PhaseTime& phase : phases) total += phase.seconds;
  return total;
}

std::string percent(double part, double whole) {
  return readable(100 * part / whole, part / whole >= 0.1 ? 3 : 2) + " %";
}

std::string bar(const std::vector<PhaseTime>& phases, double total) {
  std::string svg = svg_begin(kPhaseHeight, "time by phase");
  double left = 0;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const double width = phases[i].seconds / total * kSvgWidth;
    svg += "<rect class=\"p" + std::to_string(i) + "\" x=\"" + coordinate(left) + "\" y=\"0\" width=\"" +
           coordinate(std::max(width - 1, 0.5)) + "\" height=\"" + coordinate(kPhaseHeight) + "\"><title>" +
           html_escaped(phases[i].name) + "\n" + readable_seconds(phases[i].seconds) + " a step, " +
           percent(phases[i].seconds, total) + "</title></rect>";
    left += width;
  }
  return svg + "</svg>";
}

std::string table(const std::vector<PhaseTime>& phases, double total) {
  std::string html =
      "<table class=\"phases\"><thead><tr><th>phase</th><th>a step</th><th>share</th></tr></thead>";
  for (std::size_t i = 0; i < phases.size(); ++i)
    html += "<tr><td><i class=\"p" + std::to_string(i) + "\"></i>" + html_escaped(phases[i].name) +
            "</td><td>" + readable_seconds(phases[i].seconds) + "</td><td>" +
            percent(phases[i].seconds, total) + "</td></tr>";
  return html + "<tr class=\"sum\"><td>whole step</td><td>" + readable_seconds(total) +
         "</td><td></td></tr></table>";
}

}  // namespace

std::string svg_phase_bar(const std::map<std::string, double>& seconds) {
  const std::vector<PhaseTime> phases = gathered(longest_first(seconds));
  if (phases.empty()) return "";
  const double total = total_seconds(phases);
  return bar(phases, total) + table(phases, total);
}

}  // namespace moeloom
