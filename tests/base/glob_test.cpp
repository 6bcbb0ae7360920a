#include "moeloom/base/glob.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(MatchesGlob, TakesStarsForAnythingAndQuestionMarksForOne) {
  const struct {
    const char* pattern;
    const char* name;
    bool matches;
  } cases[] = {
      {"", "", true},
      {"", "a", false},
      {"a", "", false},
      {"*", "", true},
      {"*", "model.norm.weight", true},
      {"**", "a", true},
      {"model.norm.weight", "model.norm.weight", true},
      {"model.norm", "model.norm.weight", false},
      {"norm.weight", "model.norm.weight", false},
      {"*norm*", "model.layers.0.input_layernorm.weight", true},
      {"model.layers.?.*", "model.layers.0.mlp.gate.weight", true},
      {"model.layers.?.*", "model.layers.10.mlp.gate.weight", false},
      {"*.gate.weight", "model.layers.0.mlp.gate.weight", true},
      {"*.gate.weight", "model.layers.0.mlp.gateXweight", false},
      {"*ab*ab", "abxabab", true},  // the last star must give way twice
      {"*ab*ab", "ab", false},
      {"a*b?", "aXXbYbZ", true},
      {"a*b?", "ab", false},
      {"[a]", "a", false},  // no sets: brackets are letters
  };
  for (const auto& c : cases)
    EXPECT_EQ(matches_glob(c.pattern, c.name), c.matches) << c.pattern << " " << c.name;
}

TEST(Glob, AnyOfSeveralPatternsMayFit) {
  EXPECT_TRUE(matches_any({"a.*", "*.b"}, "x.b"));
  EXPECT_FALSE(matches_any({"a.*", "*.b"}, "x.c"));
  EXPECT_FALSE(matches_any({}, "x"));
}

}  // namespace
}  // namespace moeloom
