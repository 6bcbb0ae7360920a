#include "moeloom/report/svg_load_map.hpp"

#include "moeloom/report/html.hpp"
#include "moeloom/report/series.hpp"
#include "moeloom/report/svg.hpp"

#include <algorithm>
#include <cmath>

namespace moeloom {
namespace {

constexpr double kMapTop = 6;
constexpr double kMostHeight = 400;
constexpr Index kMostColumns = 60;
constexpr double kPalest = 0.06;

struct LoadMap {
  std::vector<std::vector<Point>> rows;  // by layer; x a step, y a load, NaN or 0 in a dense layer
  double largest = 1;
  double cell_height = 0;
};

LoadMap load_map(const std::vector<std::vector<Point>>& layers) {
  LoadMap map;
  for (const std::vector<Point>& layer : layers) map.rows.push_back(thinned(layer, kMostColumns));
  for (const std::vector<Point>& row : map.rows)
    for (const Point& point : row)
      if (std::isfinite(point.y)) map.largest = std::max(map.largest, point.y);
  map.cell_height = std::min(34.0, kMostHeight / std::max(1.0, static_cast<double>(map.rows.size())));
  return map;
}

/// Balanced is almost clear, the fullest seen is solid.
double shade(double load, double largest) {
  const double above = largest > 1 ? (load - 1) / (largest - 1) : 0;
  return kPalest + (1 - kPalest) * std::clamp(above, 0.0, 1.0);
}

std::string cell(const LoadMap& map, std::size_t layer, std::size_t column) {
  const std::vector<Point>& row = map.rows[layer];
  const Point& point = row[column];
  if (!(point.y > 0)) return "";
  const double wide = (kSvgWidth - kSvgLeft - kSvgRight) / static_cast<double>(row.size());
  return "<rect class=\"load\" x=\"" + coordinate(kSvgLeft + wide * static_cast<double>(column)) + "\" y=\"" +
         coordinate(kMapTop + map.cell_height * static_cast<double>(layer)) + "\" width=\"" +
         coordinate(wide) + "\" height=\"" + coordinate(map.cell_height - 1) + "\" fill-opacity=\"" +
         coordinate(shade(point.y, map.largest)) + "\"><title>layer " + std::to_string(layer) +
         ", from step " + readable(point.x, 7) + "\nfullest expert " + readable(point.y) +
         " x the average</title></rect>";
}

std::string rows(const LoadMap& map) {
  constexpr double kLeastLabelHeight = 13;
  const auto every = static_cast<std::size_t>(std::ceil(kLeastLabelHeight / map.cell_height));
  std::string svg;
  for (std::size_t layer = 0; layer < map.rows.size(); ++layer) {
    const double middle = kMapTop + map.cell_height * (static_cast<double>(layer) + 0.5) + 4;
    if (layer % every == 0) svg += svg_text(kSvgLeft - 8, middle, "end", "layer " + std::to_string(layer));
    const bool is_dense = std::ranges::none_of(map.rows[layer], [](const Point& p) { return p.y > 0; });
    if (is_dense) svg += svg_text(kSvgLeft + 8, middle, "start", "dense");
    for (std::size_t column = 0; column < map.rows[layer].size(); ++column) svg += cell(map, layer, column);
  }
  return svg;
}

std::string step_axis(const LoadMap& map, double bottom) {
  const std::vector<Point>& row = map.rows.front();
  std::string svg = svg_text((kSvgLeft + kSvgWidth - kSvgRight) / 2, bottom + 38, "middle", "step");
  svg += svg_text(kSvgLeft, bottom + 18, "start", readable(row.front().x, 7));
  if (row.size() > 1) svg += svg_text(kSvgWidth - kSvgRight, bottom + 18, "end", readable(row.back().x, 7));
  return svg;
}

std::string legend(const LoadMap& map) {
  return "<p class=\"legend\"><span>1 (balanced)</span><i class=\"ramp\"></i><span>" + readable(map.largest) +
         " (fullest seen)</span></p>";
}

}  // namespace

std::string svg_load_map(const std::vector<std::vector<Point>>& layers) {
  const LoadMap map = load_map(layers);
  const bool any = std::ranges::any_of(map.rows, [](const std::vector<Point>& row) {
    return std::ranges::any_of(row, [](const Point& point) { return point.y > 0; });
  });
  if (!any) return "";
  const double bottom = kMapTop + map.cell_height * static_cast<double>(map.rows.size());
  return legend(map) + svg_begin(bottom + kSvgBottom, "expert load by layer and step") + rows(map) +
         step_axis(map, bottom) + "</svg>";
}

}  // namespace moeloom
