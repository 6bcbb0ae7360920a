#include "hf/adapter/module_pattern.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(ModulePattern, FitsWholeNamesOrTheirEndsBehindADot) {
  const auto whole = module_pattern("layers\\.(?:0|1)\\.q_proj|o_proj", 64);
  EXPECT_TRUE(whole("layers.1.q_proj"));
  EXPECT_TRUE(whole("o_proj"));
  EXPECT_FALSE(whole("model.layers.1.q_proj"));
  const auto end = module_pattern("q_proj|o_proj", 64, true);
  EXPECT_TRUE(end("model.layers.1.o_proj"));
  EXPECT_FALSE(end("model.layers.1.kq_proj"));
}

TEST(ModulePattern, IsNoneWherePythonMayMeanAnotherThing) {
  for (const char* pattern :
       {"\\Aq_proj", "(?P<n>q)", "(?i)q_proj", "(q", "[]q]", "q\\1111111111", "q{9999999999}"})
    EXPECT_FALSE(module_pattern(pattern, 64)) << pattern;
}

TEST(ModulePattern, LooksAtNothingThatIsLonger) {
  EXPECT_FALSE(module_pattern(std::string(65, 'q'), 64));
  EXPECT_FALSE(module_pattern("q*", 64)(std::string(65, 'q')));
}

}  // namespace
}  // namespace moeloom
