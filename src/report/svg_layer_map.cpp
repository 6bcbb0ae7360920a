#include "report/svg_layer_map.hpp"

#include "report/html.hpp"
#include "report/svg.hpp"

#include <algorithm>
#include <cmath>

namespace moeloom {
namespace {

constexpr double kMapTop = 6;
constexpr double kMostHeight = 400;
constexpr double kLeastLabelHeight = 13;
constexpr double kPalest = 0.06;
constexpr double kWide = kSvgWidth - kSvgLeft - kSvgRight;
// A cell takes a hundred bytes of the page, and the page has several maps.
constexpr Index kMostCells = 2400;
constexpr Index kLeastColumns = 20;

/// The map with few enough columns, and its measures.
struct MapDrawing {
  const LayerMap& map;
  std::vector<std::vector<Point>> rows;  // by layer
  bool thin = false;                     // cells are stretches of several x
  double cell_height = 0;

  explicit MapDrawing(const LayerMap& drawn) : map(drawn) {
    const auto layers = std::max<Index>(std::ssize(map.layers), 1);
    const Index columns = std::clamp(kMostCells / layers, kLeastColumns, kMostMapColumns);
    for (const std::vector<Point>& layer : map.layers) {
      rows.push_back(thinned(layer, columns));
      const Index points = std::ssize(layer);
      if (points <= columns) continue;
      thin = true;
      rows.back().back().x = layer[at((columns - 1) * points / columns)].x;  // where its stretch begins
    }
    cell_height = std::min(34.0, kMostHeight / static_cast<double>(layers));
  }
  double top_of(Index layer) const { return kMapTop + cell_height * static_cast<double>(layer); }
  double bottom() const { return top_of(std::ssize(rows)); }
  double cell_width(const std::vector<Point>& row) const { return kWide / static_cast<double>(row.size()); }
};

bool is_empty(const std::vector<Point>& row) {
  return std::ranges::none_of(row, [](const Point& point) { return std::isfinite(point.y); });
}

double shade(const LayerMap& map, double value) {
  const double way = map.solid == map.pale ? 0 : (value - map.pale) / (map.solid - map.pale);
  return kPalest + (1 - kPalest) * std::clamp(way, 0.0, 1.0);
}

std::string rectangle(double left, double top, double width, double height) {
  return "<rect x=\"" + coordinate(left) + "\" y=\"" + coordinate(top) + "\" width=\"" + coordinate(width) +
         "\" height=\"" + coordinate(height) + "\"";
}

std::string titled(const std::string& text) {
  return "><title>" + html_escaped(text) + "</title></rect>";
}

std::string map_cells(const MapDrawing& drawing, Index layer) {
  const std::vector<Point>& row = drawing.rows[at(layer)];
  const std::string name =
      "layer " + std::to_string(layer) + (drawing.thin ? ", from " : ", ") + drawing.map.x_label + " ";
  const double wide = drawing.cell_width(row);
  std::string svg;
  for (std::size_t column = 0; column < row.size(); ++column) {
    const auto& [x, y] = row[column];
    if (!std::isfinite(y)) continue;
    svg += rectangle(kSvgLeft + wide * static_cast<double>(column), drawing.top_of(layer), wide,
                     drawing.cell_height - 1) +
           " fill-opacity=\"" + coordinate(shade(drawing.map, y)) + "\"" +
           titled(name + readable(x, 7) + "\n" + drawing.map.text(y));
  }
  return svg;
}

std::string map_rows(const MapDrawing& drawing) {
  const auto every = static_cast<Index>(std::ceil(kLeastLabelHeight / drawing.cell_height));
  std::string svg;
  std::string labels;
  for (Index layer = 0; layer < std::ssize(drawing.rows); ++layer) {
    const double middle = drawing.top_of(layer) + drawing.cell_height / 2 + 4;
    if (layer % every == 0) labels += svg_text(kSvgLeft - 8, middle, "end", "layer " + std::to_string(layer));
    if (is_empty(drawing.rows[at(layer)])) labels += svg_text(kSvgLeft + 8, middle, "start", "dense");
    svg += map_cells(drawing, layer);
  }
  return "<g class=\"map\">" + svg + "</g>" + labels;
}

/// The column whose stretch holds x.
std::size_t column_of(const std::vector<Point>& row, double x) {
  const auto after = std::ranges::upper_bound(row, x, {}, &Point::x);
  return after == row.begin() ? 0 : static_cast<std::size_t>(after - row.begin() - 1);
}

std::string map_marks(const MapDrawing& drawing) {
  std::string svg;
  for (const MapMark& mark : drawing.map.marks) {
    if (mark.layer < 0 || mark.layer >= std::ssize(drawing.rows)) continue;
    const std::vector<Point>& row = drawing.rows[at(mark.layer)];
    if (row.empty()) continue;
    const std::size_t first = column_of(row, mark.from);
    const std::size_t last = std::max(column_of(row, mark.to), first);
    const double wide = drawing.cell_width(row);
    svg += rectangle(kSvgLeft + wide * static_cast<double>(first) + 1, drawing.top_of(mark.layer) + 1,
                     wide * static_cast<double>(last - first + 1) - 2, drawing.cell_height - 3) +
           " class=\"mark\"" + titled(mark.text);
  }
  return svg;
}

std::string x_axis(const MapDrawing& drawing) {
  const std::vector<Point>& points = drawing.map.layers.front();
  const double y = drawing.bottom();
  std::string svg = svg_text((kSvgLeft + kSvgWidth - kSvgRight) / 2, y + 38, "middle", drawing.map.x_label);
  svg += svg_text(kSvgLeft, y + 18, "start", readable(points.front().x, 7));
  if (points.size() > 1) svg += svg_text(kSvgWidth - kSvgRight, y + 18, "end", readable(points.back().x, 7));
  return svg;
}

std::string legend(const LayerMap& map) {
  return "<p class=\"legend\"><span>" + html_escaped(map.pale_text) + "</span><i class=\"ramp\"></i><span>" +
         html_escaped(map.solid_text) + "</span></p>";
}

}  // namespace

std::string svg_layer_map(const LayerMap& map) {
  const MapDrawing drawing(map);
  if (std::ranges::all_of(drawing.rows, is_empty)) return "";
  return legend(map) + svg_begin(drawing.bottom() + kSvgBottom, map.name) + map_rows(drawing) +
         map_marks(drawing) + x_axis(drawing) + "</svg>";
}

}  // namespace moeloom
