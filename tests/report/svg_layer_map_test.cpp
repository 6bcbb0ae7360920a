#include "report/svg_layer_map.hpp"

#include <cmath>
#include <limits>

#include "support/count_of.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::count_of;

constexpr double kNothingHere = std::numeric_limits<double>::quiet_NaN();

LayerMap map_of(std::vector<std::vector<Point>> layers) {
  return {.name = "load",
          .pale = 1,
          .solid = 3,
          .pale_text = "even <",
          .solid_text = "uneven",
          .text = [](double y) { return "load " + std::to_string(std::lround(10 * y)); },
          .layers = std::move(layers)};
}

std::vector<Point> steps(Index count, double value) {
  std::vector<Point> points;
  for (Index i = 0; i < count; ++i) points.push_back({static_cast<double>(i), value});
  return points;
}

TEST(SvgLayerMap, HasACellForEveryStepOfASparseLayer) {
  const std::string svg = svg_layer_map(map_of({{{0, kNothingHere}, {1, kNothingHere}}, {{0, 1.5}, {1, 3}}}));
  EXPECT_EQ(count_of(svg, "<rect"), 2u);
  EXPECT_EQ(count_of(svg, ">dense</text>"), 1u);
  EXPECT_EQ(count_of(svg, "<title>layer 1, step 0\nload 15</title>"), 1u);
  EXPECT_EQ(count_of(svg, "even &lt;"), 1u);
}

TEST(SvgLayerMap, ShadesGoFromPaleToSolidInEitherDirection) {
  LayerMap map = map_of({{{0, 0.5}, {1, 1}, {2, 3}, {3, 5}}});
  const std::string rising = svg_layer_map(map);
  EXPECT_EQ(count_of(rising, "fill-opacity=\"0.06\""), 2u) << "what lies outside has the shade of the bound";
  EXPECT_EQ(count_of(rising, "fill-opacity=\"1.00\""), 2u);
  std::swap(map.pale, map.solid);
  const std::string falling = svg_layer_map(map);
  EXPECT_EQ(count_of(falling, "fill-opacity=\"0.06\""), 2u);
  map.pale = map.solid;
  EXPECT_EQ(count_of(svg_layer_map(map), "fill-opacity=\"0.06\""), 4u) << "all the same";
}

TEST(SvgLayerMap, LongRunsAndManyLayersAreThinned) {
  const std::string longer = svg_layer_map(map_of({steps(1000, 2)}));
  EXPECT_EQ(count_of(longer, "<rect"), at(kMostMapColumns));
  EXPECT_EQ(count_of(longer, "<title>layer 0, from step 983\n"), 1u) << "the last cell's first step";
  EXPECT_EQ(count_of(longer, ">999</text>"), 1u) << "the axis ends with the last step";
  const std::string deep = svg_layer_map(map_of(std::vector(96, steps(1000, 2))));
  EXPECT_EQ(count_of(deep, "<rect"), 96u * 25);
  EXPECT_LT(deep.size(), std::size_t{1} << 19);
}

TEST(SvgLayerMap, FramesTheStretchesOfAMark) {
  LayerMap map = map_of({steps(600, 2), steps(600, 1)});
  map.marks = {{.layer = 1, .from = 300, .to = 599, .text = "a & b"},
               {.layer = 7, .from = 0, .to = 1, .text = ""}};
  const std::string svg = svg_layer_map(map);
  EXPECT_EQ(count_of(svg, "class=\"mark\""), 1u) << "a layer that is not there has no frame";
  // Columns 30 to 59 of 60, over 544 of 640 wide from 82 on, a pixel within.
  EXPECT_EQ(count_of(svg, "<rect x=\"355.00\" y=\"41.00\" width=\"270.00\" height=\"31.00\" class=\"mark\""),
            1u);
  EXPECT_EQ(count_of(svg, "<title>a &amp; b</title>"), 1u);
}

TEST(SvgLayerMap, IsEmptyWithoutAValue) {
  EXPECT_EQ(svg_layer_map(map_of({})), "");
  EXPECT_EQ(svg_layer_map(map_of({{}})), "");
  EXPECT_EQ(svg_layer_map(map_of({{{0, kNothingHere}}, {{0, kNothingHere}}})), "");
}

}  // namespace
}  // namespace moeloom
