#include "report/svg_phase_bar.hpp"

#include "support/count_of.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(SvgPhaseBar, ShowsTheLongestFirstAndTheWholeStep) {
  const std::string html = svg_phase_bar({{"experts", 0.03}, {"loss", 0}, {"reduce", 0.01}});
  EXPECT_EQ(testing::count_of(html, "<rect "), 2u) << "nothing is drawn of a phase without time";
  EXPECT_LT(html.find("experts"), html.find("reduce"));
  EXPECT_EQ(testing::count_of(html, "<td>30 ms</td><td>75 %</td>"), 1u) << html;
  EXPECT_EQ(testing::count_of(html, "<td>whole step</td><td>40 ms</td>"), 1u) << html;
}

TEST(SvgPhaseBar, GathersWhatHasNoColourLeft) {
  std::map<std::string, double> seconds;
  for (int i = 1; i <= 12; ++i) seconds["phase " + std::to_string(i)] = 0.001 * i;
  const std::string html = svg_phase_bar(seconds);
  EXPECT_EQ(testing::count_of(html, "<rect "), 8u);
  EXPECT_EQ(testing::count_of(html, ">all others</td><td>15 ms</td>"), 1u) << html;
}

TEST(SvgPhaseBar, IsEmptyWithoutAPhase) {
  EXPECT_EQ(svg_phase_bar({}), "");
  EXPECT_EQ(svg_phase_bar({{"loss", 0}}), "");
}

}  // namespace
}  // namespace moeloom
