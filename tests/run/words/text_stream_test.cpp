#include "words/text_stream.hpp"

#include "moeloom/model/hf/config.hpp"

#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

ModelText text_of_words() {
  ModelConfig config;
  config.vocab_size = 1 << 20;
  return ModelText::of(testing::source_root() / "tests/data/text/tokenizers/tiny-bytelevel-qwen2", config);
}

/// What is shown token by token, and at the end.
std::vector<std::string> shown(const ModelText& model, const std::string& text,
                               const std::vector<std::string>& stops) {
  TextStream stream(model, stops);
  std::vector<std::string> parts;
  for (const std::int32_t id : model.encode(text, false)) parts.push_back(stream.add(id));
  parts.push_back(stream.finish());
  std::string all;
  for (const std::string& part : parts) all += part;
  EXPECT_EQ(all, stream.text());
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

TEST(TextStream, ShowsWholeCharactersOnly) {
  const ModelText model = text_of_words();
  const std::string text = "Höhe 汉字 🧵 fin";
  const std::vector<std::string> parts = shown(model, text, {});
  EXPECT_EQ(joined(parts), text);
  for (const std::string& part : parts) EXPECT_EQ(valid_utf8(part), part);
}

TEST(TextStream, EndsBeforeAStopTextAndNeverShowsItsBeginning) {
  const ModelText model = text_of_words();
  EXPECT_EQ(joined(shown(model, "one two\n\nthree", {"\n\n", "four"})), "one two");
  EXPECT_EQ(joined(shown(model, "one two\nthree\n", {"\n\n"})), "one two\nthree\n")
      << "what was held back comes in the end";
  ModelConfig bytes;
  bytes.vocab_size = 256;
  const ModelText plain = ModelText::of("/nowhere", bytes);
  for (const std::string& part : shown(plain, "abcabd", {"abd"}))
    EXPECT_EQ(part.find("abd"), std::string::npos);
  EXPECT_EQ(joined(shown(plain, "abcabd", {"abd"})), "abc");
}

TEST(ModelText, RefusesIdsBeyondTheEmbeddingWhereTheyAreMetAndNoTokenizer) {
  ModelConfig config;
  config.vocab_size = 300;
  const ModelText text =
      ModelText::of(testing::source_root() / "tests/data/text/tokenizers/tiny-bytelevel-qwen2", config);
  EXPECT_EQ(text.encode("x", false).size(), 1U);
  EXPECT_THROW(text.encode("In the beginning", false), ConfigError);
  EXPECT_THROW(ModelText::of("/nowhere", config), ConfigError);
  config.vocab_size = 256;
  EXPECT_TRUE(ModelText::of("/nowhere", config).is_bytes());
}

}  // namespace
}  // namespace moeloom
