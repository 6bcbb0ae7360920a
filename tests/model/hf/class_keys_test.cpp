// Every key that transformers' own classes write, with their defaults, as 4.57.6 and 5.15.0 say them: none is
// unknown, and what is written of them says the same to both versions. The two files beside this one are
// `to_json_string(use_diff=False)` of each class without other towers; "everywhere" is what all of them say.
// Sizes are others where the defaults make no model: an odd head_dim, no experts, no layer_types.
#include "model/hf/family.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/config.hpp"

#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// Of two objects in one line.
std::string joined(const std::string& one, const std::string& other) {
  return one.substr(0, one.rfind('}')) + ", " + other.substr(1);
}

TEST(ClassKeys, AreKnownInBothVersions) {
  for (const char* const version : {"4.57.6", "5.15.0"}) {
    const std::string file = "tests/model/hf/class_keys_" + std::string(version) + ".json";
    const Document keys = Document::read(testing::source_root() / file);
    const Document families = keys.object("families");
    EXPECT_GT(families.keys().size(), 26u) << version;
    for (const std::string& type : families.keys()) {
      SCOPED_TRACE(type + " of " + version);
      const std::string text = joined(keys.object("everywhere").dump(-1), families.object(type).dump(-1));
      try {
        const ModelConfig config = ModelConfig::from(Document::parse(text, type));
        EXPECT_EQ(config.model_type, type);
        const ModelConfig again = ModelConfig::from(config.to_document());
        EXPECT_EQ(again.rope_theta, config.rope_theta);
        EXPECT_TRUE(again.rope_scaling == config.rope_scaling);
        EXPECT_EQ(again.partial_rotary_factor, config.partial_rotary_factor);
        EXPECT_EQ(again.num_experts, config.num_experts);
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace moeloom
