#include "words/model_text.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/config.hpp"

#include "support/expect_error.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(ModelText, IsBytesWhereThereAreAsManyIds) {
  ModelConfig config;
  config.vocab_size = 256;
  EXPECT_TRUE(ModelText::of("/nowhere", config).is_bytes());
}

TEST(ModelText, AdvisesWhatItsCommandTakes) {
  ModelConfig config;
  config.vocab_size = 512;
  const auto message = [&](const std::string& other_way) {
    return testing::message_of<ConfigError>([&] { ModelText::of("/nowhere", config, other_way); });
  };
  EXPECT_EQ(message(""),
            "there is no tokenizer.json in /nowhere: vocab_size = 512, and bytes need 256; put the model's "
            "tokenizer there");
  EXPECT_NE(message("ask in ids: `prompt-ids` 1,2,3").find("there, or ask in ids: `prompt-ids` 1,2,3"),
            std::string::npos);
}

}  // namespace
}  // namespace moeloom
