#include "report/svg.hpp"

#include "report/html.hpp"

namespace moeloom {

std::string svg_begin(double height, const std::string& label) {
  return "<svg viewBox=\"0 0 " + coordinate(kSvgWidth) + " " + coordinate(height) +
         "\" role=\"img\" aria-label=\"" + html_escaped(label) + "\">";
}

std::string svg_text(double x, double y, const std::string& anchor, const std::string& content) {
  return "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" text-anchor=\"" + anchor + "\">" +
         html_escaped(content) + "</text>";
}

}  // namespace moeloom
