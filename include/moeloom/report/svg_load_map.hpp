// Expert load over steps and layers, as a map of shades: a row a layer, a column a stretch of steps.
#pragma once

#include "moeloom/report/series.hpp"

#include <string>

namespace moeloom {

/// layers: of each the fullest expert's rows over the average expert's, a point a step, all of the same
/// steps; NaN or 0 where a layer is dense. Each cell is the mean over its steps. Empty if no layer is sparse.
std::string svg_load_map(const std::vector<std::vector<Point>>& layers);

}  // namespace moeloom
