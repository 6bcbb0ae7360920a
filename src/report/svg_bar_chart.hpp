// Horizontal bars as SVG text, a label and a value beside each. Colours come from the page's style sheet.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace moeloom {

struct Bar {
  std::string label;
  std::vector<double> parts;  // one for each name of the chart, in their colours p0, p1, ...
};

struct BarChart {
  std::string name;                // read to people who cannot see it
  std::vector<std::string> parts;  // names; a legend if there are several
  bool stacked = true;             // parts add up, and the sum stands beside them; else each has its own bar
  std::function<std::string(double)> text;
  std::vector<Bar> bars;
};

/// Parts that are zero in every bar are left out. Empty if there are no bars.
std::string svg_bar_chart(const BarChart& chart);

}  // namespace moeloom
