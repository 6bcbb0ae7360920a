#include "text/chat_model.hpp"

#include "moeloom/text/tokenizer.hpp"

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

class ChatModelFolder : public ::testing::Test {
 protected:
  void write(const fs::path& file, std::string_view text) {
    fs::create_directories((folder_ / file).parent_path());
    testing::write_bytes(folder_ / file, text);
  }
  ChatModel load() const { return ChatModel::load(folder_.path()); }
  std::string source(bool with_tools) const { return load().chat_template(with_tools).source(); }

  testing::TemporaryFolder folder_;
};

TEST_F(ChatModelFolder, TakesTheTextOfTheConfig) {
  write("tokenizer_config.json",
        R"({"chat_template": "A", "bos_token": null, "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(source(false), "A");
  EXPECT_EQ(source(true), "A");
  EXPECT_EQ(load().special_token("eos_token"), "</s>");
  EXPECT_EQ(load().special_token("bos_token"), "");
  EXPECT_EQ(load().special_tokens().size(), 1U);
}

TEST_F(ChatModelFolder, TakesToolUseWhereToolsAreGiven) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]})");
  EXPECT_EQ(source(false), "D");
  EXPECT_EQ(source(true), "T");
}

TEST_F(ChatModelFolder, TakesFilesBeforeTheConfig) {
  write("tokenizer_config.json", R"({"chat_template": "A", "eos_token": "</s>"})");
  write("chat_template.jinja", "F");
  EXPECT_EQ(source(true), "F");
  write("additional_chat_templates/tool_use.jinja", "U");
  EXPECT_EQ(source(true), "U");
  EXPECT_EQ(source(false), "F");
}

TEST_F(ChatModelFolder, TakesTheMapOfSpecialTokensWhereTheConfigHasNone) {
  write("special_tokens_map.json",
        R"({"eos_token": "<e>", "additional_special_tokens": ["<x>", {"content": "<y>"}]})");
  EXPECT_EQ(load().special_token("eos_token"), "<e>");
  EXPECT_EQ(load().special_tokens().back().value.array()->size(), 2U);
}

TEST_F(ChatModelFolder, TakesTheMapBeforeAConfigWithoutADecoder) {
  write("special_tokens_map.json", R"({"eos_token": "<e>"})");
  write("tokenizer_config.json", R"({"eos_token": "</s>", "image_token": "<i>"})");
  EXPECT_EQ(load().special_token("eos_token"), "<e>");
  EXPECT_EQ(load().special_token("image_token"), "<i>");
  write("tokenizer_config.json", R"({"eos_token": "</s>", "added_tokens_decoder": {}})");
  EXPECT_EQ(load().special_token("eos_token"), "</s>");
}

TEST_F(ChatModelFolder, GivesATemplateTheTokensThatTheTokenizerHas) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const Tokenizer tokenizer = Tokenizer::parse(
      R"({"added_tokens": [{"id": 1, "content": "</s>", "special": true}], "normalizer": null, "pre_tokenizer": null,
          "post_processor": null, "decoder": null,
          "model": {"type": "BPE", "vocab": {"a": 0, "</s>": 1}, "merges": []}})",
      "tokenizer.json");
  const JsonValue::Object variables = load().variables(tokenizer);
  ASSERT_EQ(variables.size(), 1U);
  EXPECT_EQ(variables[0].name, "eos_token");
}

TEST_F(ChatModelFolder, SaysWhatIsMissingOrWrong) {
  const auto error = [&] {
    try {
      source(false);
    } catch (const Error& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  EXPECT_FALSE(load().has_template());
  EXPECT_NE(error().find("expected a chat template"), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_NE(error().find("tokenizer_config.json: chat_template: expected a text or a list"),
            std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": ""}]})");
  EXPECT_NE(error().find("rag"), std::string::npos);
  write("chat_template.jinja", "a\n{% for %}");
  EXPECT_NE(error().find("chat_template.jinja:2:"), std::string::npos);
}

}  // namespace
}  // namespace moeloom
