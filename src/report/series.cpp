#include "report/series.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace moeloom {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

double mean_y(std::span<const Point> points) {
  double sum = 0;
  Index count = 0;
  for (const Point& point : points) {
    if (!std::isfinite(point.y)) continue;
    sum += point.y;
    ++count;
  }
  return count == 0 ? kNothing : sum / static_cast<double>(count);
}

double peak_y(std::span<const Point> points) {
  double peak = kNothing;
  for (const Point& point : points)
    if (std::isfinite(point.y) && !(point.y <= peak)) peak = point.y;
  return peak;
}

template <typename Summary>
std::vector<Point> thinned_by(const std::vector<Point>& points, Index limit, const Summary& summary) {
  const auto most = static_cast<std::size_t>(limit);
  if (points.size() <= most) return points;
  std::vector<Point> thin;
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t begin = i * points.size() / most, end = (i + 1) * points.size() / most;
    thin.push_back({points[begin].x, summary(std::span(points).subspan(begin, end - begin))});
  }
  thin.front().x = points.front().x;
  thin.back().x = points.back().x;
  return thin;
}

}  // namespace

std::vector<Point> thinned(const std::vector<Point>& points, Index limit) {
  return thinned_by(points, limit, mean_y);
}

std::vector<Point> thinned_to_peaks(const std::vector<Point>& points, Index limit) {
  return thinned_by(points, limit, peak_y);
}

std::vector<Point> smoothed(const std::vector<Point>& points, Index reach) {
  std::vector<Point> smooth = points;
  for (std::size_t i = 0; i < points.size(); ++i) {
    // Both sides alike, also near the ends: a window that leans would bend the curve there.
    const std::size_t side = std::min({static_cast<std::size_t>(reach), i, points.size() - 1 - i});
    if (std::isfinite(points[i].y)) smooth[i].y = mean_y(std::span(points).subspan(i - side, 2 * side + 1));
  }
  return smooth;
}

std::vector<double> ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(count, 1);
  if (!(rough > 0) || !std::isfinite(rough)) return {low};
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough * 0.999) step = factor * power;
  std::vector<double> marks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
    marks.push_back(i * step);
  return marks;
}

}  // namespace moeloom
