#include "fields/template_switches.hpp"

#include "fields/option_values.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(TemplateSwitches, AreJsonOrTextsWithCommasBetween) {
  const TemplateSwitches read = read_template_switches(
      R"(enable_thinking=false,effort=low, or so,tools=["a","b=c,d=e"],name="x,y=1",n=3,empty=)");
  ASSERT_EQ(read.variables.size(), 6U);
  EXPECT_FALSE(*read.variables[0].value.boolean());
  EXPECT_EQ(*read.variables[1].value.text(), "low, or so");
  EXPECT_EQ(read.variables[2].value.array()->size(), 2U);
  EXPECT_EQ(*read.variables[3].value.text(), "x,y=1");
  EXPECT_EQ(*read.variables[4].value.integer(), 3);
  EXPECT_EQ(*read.variables[5].value.text(), "");
  EXPECT_TRUE(read_template_switches("").variables.empty());
}

TEST(TemplateSwitches, RefuseWhatWouldBeAnotherValueThanItSeems) {
  for (const char* text : {"enable_thinking=False", "x=1,y=None", "enable_thinking", "=1", "1x=2"})
    EXPECT_THROW(read_template_switches(text), BadValue) << text;
}

}  // namespace
}  // namespace moeloom
