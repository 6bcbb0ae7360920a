#include "moeloom/report/svg_load_map.hpp"

#include <limits>

#include "support/count_of.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr double kNothingHere = std::numeric_limits<double>::quiet_NaN();

TEST(SvgLoadMap, HasACellForEveryStepOfASparseLayer) {
  const std::string svg = svg_load_map({{{0, 0}, {1, 0}}, {{0, 1.5}, {1, 3}}});
  EXPECT_EQ(testing::count_of(svg, "<rect class=\"load\""), 2u);
  EXPECT_EQ(testing::count_of(svg, ">dense</text>"), 1u);
  EXPECT_EQ(testing::count_of(svg, "fullest expert 1.5 x the average"), 1u);
  EXPECT_EQ(testing::count_of(svg, "<span>3 (fullest seen)</span>"), 1u);
}

TEST(SvgLoadMap, IsEmptyWithoutASparseLayer) {
  EXPECT_EQ(svg_load_map({}), "");
  EXPECT_EQ(svg_load_map({{}}), "");
  EXPECT_EQ(svg_load_map({{{0, 0}}, {{0, kNothingHere}}}), "");
}

}  // namespace
}  // namespace moeloom
