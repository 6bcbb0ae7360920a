#include "report/svg.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Svg, EscapesWhatPeopleRead) {
  EXPECT_EQ(svg_text(1, 2.5, "end", "a < b"),
            "<text x=\"1.00\" y=\"2.50\" text-anchor=\"end\">a &lt; b</text>");
  EXPECT_EQ(svg_begin(260, "loss & norm"),
            "<svg viewBox=\"0 0 640.00 260.00\" role=\"img\" aria-label=\"loss &amp; norm\">");
}

}  // namespace
}  // namespace moeloom
