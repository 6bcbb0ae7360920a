// Line charts as SVG text. Colours and fonts come from the page's style sheet, by class.
#pragma once

#include "report/series.hpp"

#include <string>
#include <vector>

namespace moeloom {

inline constexpr Index kMostPoints = 600;

struct Series {
  std::string name;  // in tooltips and the legend
  std::string css_class;
  std::vector<Point> points;  // x rising
  bool as_dots = false;
};

/// Something that happened at x.
struct Mark {
  double x = 0;
  std::string name;  // short, above its line
  std::string text;  // its tooltip
};

struct LineChart {
  std::string x_label = "step";
  std::string y_label;  // with its unit
  bool from_zero = false;
  std::vector<std::string> x_names = {};  // if any: x are places of these, which alone are marked
  std::vector<Series> series;
  std::vector<Mark> marks = {};  // x rising
};

/// A chart with axes, a legend if there are several series, and a tooltip for each stretch of x.
std::string svg_line_chart(const LineChart& chart);

}  // namespace moeloom
