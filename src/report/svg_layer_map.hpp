// A figure of each layer as a map of shades: a row a layer, a column a stretch of steps, or an expert.
#pragma once

#include "report/series.hpp"

#include <functional>
#include <string>
#include <vector>

namespace moeloom {

inline constexpr Index kMostMapColumns = 60;

/// A frame around the cells of a layer from one x to another, both within.
struct MapMark {
  Index layer = 0;
  double from = 0;
  double to = 0;
  std::string text;  // its tooltip
};

struct LayerMap {
  std::string name;  // read to people who cannot see it
  std::string x_label = "step";
  double pale = 0;   // the value of an almost clear cell
  double solid = 1;  // that of a full one; less than `pale` where small values are to be seen
  std::string pale_text;
  std::string solid_text;
  std::function<std::string(double)> text;  // a value in a tooltip
  /// A point for each x, all layers of the same x; NaN where nothing is known, as in a dense layer.
  std::vector<std::vector<Point>> layers;
  std::vector<MapMark> marks = {};
};

/// Each cell is the mean over its stretch of at most kMostMapColumns, fewer where there are many layers.
/// Empty if no layer has a value.
std::string svg_layer_map(const LayerMap& map);

}  // namespace moeloom
