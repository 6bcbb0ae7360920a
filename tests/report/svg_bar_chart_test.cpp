#include "report/svg_bar_chart.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::string text_of(double value) {
  return std::to_string(static_cast<int>(value)) + " units";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

BarChart chart_of(std::vector<Bar> bars, bool stacked = true) {
  return {.name = "a chart",
          .parts = {"first", "second", "third"},
          .stacked = stacked,
          .text = text_of,
          .bars = std::move(bars)};
}

TEST(SvgBarChart, StacksPartsAndPutsTheirSumBesideThem) {
  const std::string svg = svg_bar_chart(chart_of({{"a", {30, 0, 10}}, {"b", {20, 0, 60}}}));
  EXPECT_TRUE(contains(svg, "40 units") && contains(svg, "80 units")) << svg;
  EXPECT_TRUE(contains(svg, "a\nfirst 30 units") && contains(svg, "b\nthird 60 units")) << svg;
  EXPECT_TRUE(contains(svg, "<i class=\"block p0\"></i>first") &&
              contains(svg, "<i class=\"block p2\"></i>third"));
  EXPECT_FALSE(contains(svg, "second")) << "no bar has it";
}

TEST(SvgBarChart, BarsBesideEachOtherHaveAValueEach) {
  const std::string svg = svg_bar_chart(chart_of({{"a", {30, 5, 10}}}, false));
  for (const char* part : {">30 units<", ">5 units<", ">10 units<"}) EXPECT_TRUE(contains(svg, part)) << part;
  EXPECT_FALSE(contains(svg, "45 units"));
}

TEST(SvgBarChart, TheLongestBarFillsTheWidthAndTheOthersFollow) {
  const std::string svg = svg_bar_chart(chart_of({{"a", {10, 0, 0}}, {"b", {40, 0, 0}}}));
  EXPECT_TRUE(contains(svg, "width=\"536.40\"")) << svg;
  EXPECT_TRUE(contains(svg, "width=\"134.10\"")) << svg;
}

TEST(SvgBarChart, NothingOrZerosAloneDivideByNothing) {
  EXPECT_EQ(svg_bar_chart(chart_of({})), "");
  for (const bool stacked : {true, false}) {
    const std::string svg = svg_bar_chart(chart_of({{"a", {0, 0, 0}}}, stacked));
    EXPECT_FALSE(contains(svg, "nan") || contains(svg, "inf")) << svg;
    EXPECT_TRUE(contains(svg, ">a</text>")) << svg;
  }
}

TEST(SvgBarChart, EscapesLabels) {
  EXPECT_TRUE(contains(svg_bar_chart(chart_of({{"<a>", {1, 1, 1}}})), "&lt;a&gt;"));
}

TEST(SvgBarChart, BarsBeginBesideTheLongestLabel) {
  const auto left_of_bar = [](const std::string& label) {
    const std::string svg = svg_bar_chart(chart_of({{label, {1, 0, 0}}}));
    return std::stod(svg.substr(svg.find(" x=\"", svg.find("<rect")) + 4));
  };
  EXPECT_LT(left_of_bar("ep 1, gmm off"), left_of_bar("ep 4, gmm auto, shared (grouped)"));
  EXPECT_EQ(left_of_bar(std::string(100, 'x')), left_of_bar(std::string(200, 'x'))) << "bars keep room";
}

}  // namespace
}  // namespace moeloom
