// The paper that the report's drawings share: one width, one margin for labels, and the pieces of SVG text.
#pragma once

#include <string>

namespace moeloom {

inline constexpr double kSvgWidth = 640;
// Around what is drawn over steps, so that drawings below each other line up.
inline constexpr double kSvgLeft = 82;
inline constexpr double kSvgRight = 14;
inline constexpr double kSvgBottom = 44;

/// The opening tag of a drawing as wide as the page's column; `label` is read to people who cannot see it.
std::string svg_begin(double height, const std::string& label);

/// Text at (x, y), which is its start, middle or end.
std::string svg_text(double x, double y, const std::string& anchor, const std::string& content);

}  // namespace moeloom
