#include "report/svg_bar_chart.hpp"

#include "report/html.hpp"
#include "report/svg.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {
namespace {

constexpr double kMostLabelWidth = 340;
constexpr double kLetter = 7.6;  // of the larger text on narrow screens
constexpr double kValueWidth = 84;
constexpr double kBarHeight = 15;
constexpr double kGap = 8;

/// Places of the parts that any bar has.
std::vector<std::size_t> shown_parts(const BarChart& chart) {
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < chart.parts.size(); ++i)
    if (std::ranges::any_of(chart.bars, [i](const Bar& bar) { return bar.parts[i] > 0; })) shown.push_back(i);
  return shown;
}

double total_of(const Bar& bar) {
  return std::reduce(bar.parts.begin(), bar.parts.end());
}

double longest(const BarChart& chart) {
  double most = 0;
  for (const Bar& bar : chart.bars)
    most = std::max(most, chart.stacked ? total_of(bar) : *std::ranges::max_element(bar.parts));
  return most > 0 ? most : 1;
}

/// Room for the longest label.
double label_width(const BarChart& chart) {
  std::size_t letters = 0;
  for (const Bar& bar : chart.bars) letters = std::max(letters, bar.label.size());
  return std::min(kLetter * static_cast<double>(letters) + 12, kMostLabelWidth);
}

/// Draws a chart from the top down.
class Drawing {
 public:
  explicit Drawing(const BarChart& chart)
      : chart_(chart),
        shown_(shown_parts(chart)),
        left_(label_width(chart)),
        scale_((kSvgWidth - left_ - kValueWidth) / longest(chart)) {}

  std::string svg() {
    std::string content;
    for (const Bar& bar : chart_.bars) {
      content += svg_text(left_ - 8, top_ + kBarHeight - 3, "end", bar.label);
      content += chart_.stacked ? stack(bar) : rows(bar);
      top_ += kGap;
    }
    return svg_begin(top_, chart_.name) + content + "</svg>";
  }

 private:
  std::string rectangle(const Bar& bar, std::size_t part, double left) const {
    return "<rect class=\"p" + std::to_string(part) + "\" x=\"" + coordinate(left) + "\" y=\"" +
           coordinate(top_) + "\" width=\"" + coordinate(bar.parts[part] * scale_) + "\" height=\"" +
           coordinate(kBarHeight) + "\"><title>" + html_escaped(bar.label) + "\n" +
           html_escaped(chart_.parts[part] + " " + chart_.text(bar.parts[part])) + "</title></rect>";
  }

  std::string value_beside(double value) const {
    return svg_text(left_ + value * scale_ + 6, top_ + kBarHeight - 3, "start", chart_.text(value));
  }

  std::string stack(const Bar& bar) {
    std::string content;
    double left = left_;
    for (const std::size_t part : shown_) {
      content += rectangle(bar, part, left);
      left += bar.parts[part] * scale_;
    }
    content += value_beside(total_of(bar));
    top_ += kBarHeight;
    return content;
  }

  std::string rows(const Bar& bar) {
    std::string content;
    for (const std::size_t part : shown_) {
      content += rectangle(bar, part, left_) + value_beside(bar.parts[part]);
      top_ += kBarHeight + 2;
    }
    if (shown_.empty()) top_ += kBarHeight;
    return content;
  }

  const BarChart& chart_;
  std::vector<std::size_t> shown_;
  double left_;  // where bars begin
  double scale_;
  double top_ = 2;
};

std::string legend(const BarChart& chart) {
  if (chart.parts.size() < 2) return "";
  std::string html = "<p class=\"legend\">";
  for (const std::size_t part : shown_parts(chart))
    html += "<span><i class=\"block p" + std::to_string(part) + "\"></i>" + html_escaped(chart.parts[part]) +
            "</span>";
  return html + "</p>";
}

}  // namespace

std::string svg_bar_chart(const BarChart& chart) {
  if (chart.bars.empty()) return "";
  return legend(chart) + Drawing(chart).svg();
}

}  // namespace moeloom
