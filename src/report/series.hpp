// Measured values over steps, made few enough to draw.
#pragma once

#include "moeloom/base/index.hpp"

#include <vector>

namespace moeloom {

struct Point {
  double x = 0;
  double y = 0;  // NaN: nothing was measured here
};

/// At most `limit` points, each the mean of a stretch of neighbours; NaN where all of them are.
std::vector<Point> thinned(const std::vector<Point>& points, Index limit);
/// The same with the largest of each stretch, so that no spike is lost.
std::vector<Point> thinned_to_peaks(const std::vector<Point>& points, Index limit);
/// Each y the mean of up to `reach` neighbours on both sides.
std::vector<Point> smoothed(const std::vector<Point>& points, Index reach);

/// Round numbers that cover [low, high], about `count` of them.
std::vector<double> ticks(double low, double high, int count);

}  // namespace moeloom
