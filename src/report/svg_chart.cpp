#include "report/svg_chart.hpp"

#include "report/html.hpp"
#include "report/svg.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moeloom {
namespace {

constexpr double kHeight = 260;
constexpr double kTop = 14;
constexpr Index kMostTooltips = 150;
constexpr double kMarkText = 24;  // a mark closer to the one before has no number

struct Range {
  double low = 0;
  double high = 1;
  bool known = false;

  void include(double value) {
    if (!std::isfinite(value)) return;
    low = known ? std::min(low, value) : value;
    high = known ? std::max(high, value) : value;
    known = true;
  }
  /// Wide enough to divide by.
  void open_up() {
    if (high > low) return;
    const double half = low == 0 ? 0.5 : std::fabs(low) * 0.1;
    low -= half;
    high += half;
  }
};

/// From values to places on the drawing.
struct Scale {
  Range x;
  Range y;

  explicit Scale(const LineChart& chart) {
    for (const Series& series : chart.series)
      for (const Point& point : series.points) {
        if (std::isfinite(point.y)) x.include(point.x);
        y.include(point.y);
      }
    for (const Mark& mark : chart.marks) x.include(mark.x);
    if (chart.from_zero) y.include(0);
    x.open_up();
    y.open_up();
    const double margin = (y.high - y.low) * 0.06;
    y.high += margin;
    if (!chart.from_zero) y.low -= margin;
  }
  double left_of(double value) const {
    return kSvgLeft + (value - x.low) / (x.high - x.low) * (kSvgWidth - kSvgLeft - kSvgRight);
  }
  double top_of(double value) const {
    return kHeight - kSvgBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kSvgBottom);
  }
};

std::string line(double x1, double y1, double x2, double y2, const std::string& css_class) {
  return "<line class=\"" + css_class + "\" x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) +
         "\" x2=\"" + coordinate(x2) + "\" y2=\"" + coordinate(y2) + "\"/>";
}

std::vector<double> x_marks(const LineChart& chart, const Scale& scale) {
  std::vector<double> marks = ticks(scale.x.low, scale.x.high, 6);
  if (!chart.x_names.empty()) {
    marks.resize(chart.x_names.size());
    std::iota(marks.begin(), marks.end(), 0.0);
  }
  std::erase_if(marks, [](double mark) { return mark != std::floor(mark); });  // there is no half step
  return marks;
}

std::string x_text(const LineChart& chart, double x) {
  return chart.x_names.empty() ? readable(x, 7) : chart.x_names[static_cast<std::size_t>(x)];
}

std::string axes(const LineChart& chart, const Scale& scale) {
  std::string svg;
  for (const double mark : ticks(scale.y.low, scale.y.high, 5)) {
    const double y = scale.top_of(mark);
    svg += line(kSvgLeft, y, kSvgWidth - kSvgRight, y, "grid") +
           svg_text(kSvgLeft - 8, y + 4, "end", readable(mark, 4));
  }
  for (const double mark : x_marks(chart, scale)) {
    const double x = scale.left_of(mark);
    svg += line(x, kHeight - kSvgBottom, x, kHeight - kSvgBottom + 4, "axis") +
           svg_text(x, kHeight - kSvgBottom + 18, "middle", x_text(chart, mark));
  }
  svg += line(kSvgLeft, kHeight - kSvgBottom, kSvgWidth - kSvgRight, kHeight - kSvgBottom, "axis");
  svg += svg_text((kSvgLeft + kSvgWidth - kSvgRight) / 2, kHeight - 6, "middle", chart.x_label);
  const std::string middle = coordinate((kTop + kHeight - kSvgBottom) / 2);
  // Over the marks where text is large: the heading says it there.
  svg += "<text class=\"upright\" transform=\"translate(13 " + middle +
         ") rotate(-90)\" text-anchor=\"middle\">" + html_escaped(chart.y_label) + "</text>";
  return svg;
}

std::string dot(const Scale& scale, const Point& point, const std::string& css_class) {
  return "<circle class=\"" + css_class + " dot\" r=\"3.5\" cx=\"" + coordinate(scale.left_of(point.x)) +
         "\" cy=\"" + coordinate(scale.top_of(point.y)) + "\"/>";
}

/// A path that is interrupted where nothing was measured; a point without neighbours becomes a dot.
std::string curve(const Scale& scale, const Series& series) {
  const auto measured = [&](std::size_t i) {
    return i < series.points.size() && std::isfinite(series.points[i].y);
  };
  std::string path;
  std::string dots;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    if (!measured(i)) continue;
    const Point& point = series.points[i];
    const bool continues = i > 0 && measured(i - 1);
    if (series.as_dots || (!continues && !measured(i + 1))) dots += dot(scale, point, series.css_class);
    path += (continues ? "L" : "M") + coordinate(scale.left_of(point.x)) + " " +
            coordinate(scale.top_of(point.y));
  }
  return "<path class=\"" + series.css_class + "\" d=\"" + path + "\"/>" + dots;
}

/// The last measured value of a series within [low, high).
const Point* last_within(const Series& series, double low, double high) {
  const Point* found = nullptr;
  for (const Point& point : series.points)
    if (point.x >= low && point.x < high && std::isfinite(point.y)) found = &point;
  return found;
}

std::string tooltip_text(const LineChart& chart, double low, double high) {
  std::string text;
  for (const Series& series : chart.series) {
    const Point* point = last_within(series, low, high);
    if (point == nullptr) continue;
    if (text.empty()) text = chart.x_label + " " + x_text(chart, point->x);
    text += "\n" + series.name + " " + readable(point->y, 4);
  }
  return text;
}

/// Invisible columns over the drawing, each with the values below it.
std::string tooltips(const LineChart& chart, const Scale& scale) {
  std::size_t most = 1;
  for (const Series& series : chart.series) most = std::max(most, series.points.size());
  const Index columns = std::min(static_cast<Index>(most), kMostTooltips);
  const double wide = (scale.x.high - scale.x.low) / static_cast<double>(columns);
  std::string svg;
  for (Index i = 0; i < columns; ++i) {
    const double low = scale.x.low + wide * static_cast<double>(i);
    const bool is_last = i + 1 == columns;
    const std::string text = tooltip_text(chart, low, is_last ? scale.x.high + 1 : low + wide);
    if (text.empty()) continue;
    const double left = scale.left_of(low);
    svg += "<rect class=\"hit\" x=\"" + coordinate(left) + "\" y=\"" + coordinate(kTop) + "\" width=\"" +
           coordinate(scale.left_of(low + wide) - left) + "\" height=\"" +
           coordinate(kHeight - kTop - kSvgBottom) + "\"><title>" + html_escaped(text) + "</title></rect>";
  }
  return svg;
}

/// A line from top to bottom, with its text as a tooltip of a wider column, and its number above.
std::string marks(const LineChart& chart, const Scale& scale) {
  std::string svg;
  double last = -1;  // where a number stands
  for (const Mark& mark : chart.marks) {
    const double x = scale.left_of(mark.x);
    svg += "<g class=\"event\">" + line(x, kTop, x, kHeight - kSvgBottom, "event");
    if (last < 0 || x - last >= kMarkText) svg += svg_text(last = x, kTop - 3, "middle", mark.name);
    svg += "<rect class=\"hit\" x=\"" + coordinate(x - 4) + "\" y=\"" + coordinate(kTop) +
           "\" width=\"8\" height=\"" + coordinate(kHeight - kTop - kSvgBottom) + "\"><title>" +
           html_escaped(mark.text) + "</title></rect></g>";
  }
  return svg;
}

std::string legend(const LineChart& chart) {
  if (chart.series.size() < 2) return "";
  std::string html = "<p class=\"legend\">";
  for (const Series& series : chart.series)
    html += "<span><i class=\"" + series.css_class + "\"></i>" + html_escaped(series.name) + "</span>";
  return html + "</p>";
}

}  // namespace

std::string svg_line_chart(const LineChart& chart) {
  const Scale scale(chart);
  std::string svg = svg_begin(kHeight, chart.y_label + " by " + chart.x_label) + axes(chart, scale);
  for (const Series& series : chart.series) svg += curve(scale, series);
  return legend(chart) + svg + tooltips(chart, scale) + marks(chart, scale) + "</svg>";
}

}  // namespace moeloom
