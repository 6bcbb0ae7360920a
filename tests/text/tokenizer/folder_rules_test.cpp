#include "moeloom/base/errors.hpp"
#include "moeloom/text/tokenizer.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <unistd.h>

#include "support/expect_error.hpp"
#include "tokenizer/tokenizer_data.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Ids;
using testing::kModel;

class FolderRules : public ::testing::Test {
 protected:
  FolderRules() {
    std::filesystem::create_directories(folder_);
    write("tokenizer.json",
          std::string(R"({"added_tokens": [{"id": 7, "content": "<s>", "special": true}], "model": )") +
              kModel + "}");
  }
  ~FolderRules() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  Ids encoded(const std::string& config, const std::string& text,
              const std::set<std::string>& ignored = {}) const {
    write("tokenizer_config.json", config);
    return Tokenizer::of_folder(folder_, ignored).encode(text, true);
  }
  std::string refusal(const std::string& config) const {
    return testing::message_of<ConfigError>([&] { encoded(config, "ab"); });
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("moeloom-tokenizer-" + std::to_string(::getpid()));
};

TEST_F(FolderRules, AddsTheEndsThatTheConfigAsksFor) {
  EXPECT_EQ(Tokenizer::of_folder(folder_).encode("ab", true), (Ids{3}));
  EXPECT_EQ(encoded(R"({"bos_token": "<s>", "add_bos_token": true})", "ab"), (Ids{7, 3}));
  EXPECT_EQ(
      encoded(
          R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": true, "add_eos_token": true})",
          "ab"),
      (Ids{7, 3, 8}));
  EXPECT_EQ(encoded(R"({"add_bos_token": true})", "ab"), (Ids{3}))
      << "as transformers does without a bos_token";
  EXPECT_EQ(encoded(R"({"add_bos_token": true, "bos_token": "<x>x"})", "ab"), (Ids{8, 3}))
      << "a special token that only the config has is added";
  const std::string split = R"({"split_special_tokens": true})";
  EXPECT_THROW(encoded(split, "ab"), ConfigError);
  EXPECT_EQ(encoded(split, "ab", {"split_special_tokens"}), (Ids{3}));
}

TEST_F(FolderRules, TakesNoEndsWhereTheConfigSaysSo) {
  write("tokenizer.json", std::string(R"({"added_tokens": [{"id": 7, "content": "<s>", "special": true}],
      "post_processor": {"type": "BertProcessing", "cls": ["<s>", 7], "sep": ["<s>", 7]}, "model": )") +
                              kModel + "}");
  EXPECT_EQ(encoded("{}", "ab"), (Ids{7, 3, 7}));
  EXPECT_EQ(encoded(R"({"bos_token": "<s>", "add_bos_token": false})", "ab"), (Ids{3, 7}));
  EXPECT_EQ(encoded(R"({"bos_token": "<s>", "add_eos_token": false})", "ab"), (Ids{7, 3}));
  EXPECT_EQ(encoded(R"({"add_bos_token": false, "add_eos_token": false})", "ab"), (Ids{3}));
  EXPECT_EQ(encoded(R"({"bos_token": null, "add_bos_token": true})", "ab"), (Ids{7, 3, 7}));
}

TEST_F(FolderRules, KnowsTokensThatTheConfigAloneNames) {
  EXPECT_EQ(
      encoded(
          R"({"added_tokens_decoder": {"30": {"content": "<b>"}, "4": {"content": "<a>", "special": false}},
      "pad_token": "<pad>", "additional_special_tokens": ["<c>", "<s>"]})",
          "<a><b><pad><c><s>ab"),
      (Ids{8, 9, 10, 11, 7, 3}));
}

// The ids below are those of PreTrainedTokenizerFast of transformers 5.15 over the same files.

TEST_F(FolderRules, TakesPropertiesOfATokenFromTheDecoder) {
  EXPECT_EQ(encoded("{}", "ab <s>ab"), (Ids{3, 7, 3})) << "the model drops what it does not know";
  EXPECT_EQ(
      encoded(R"({"added_tokens_decoder": {"7": {"content": "<s>", "single_word": true}}})", "<s>ab<s>"),
      (Ids{3}));
}

TEST_F(FolderRules, AddsEachTokenThatHasAName) {
  EXPECT_EQ(
      encoded(R"({"extra_special_tokens": {"audio_token": "<u>"}, "image_token": "<i>", "pad_token": "<p>",
      "image_token_id": 3})",
              "<p><i><u>ab"),
      (Ids{8, 9, 10, 3}));
  EXPECT_EQ(encoded(R"({"model_specific_special_tokens": {"video_token": "<v>"}})", "<v>ab"), (Ids{8, 3}));
}

TEST_F(FolderRules, ReadsTheOlderFilesWhereTheConfigHasNoDecoder) {
  write("special_tokens_map.json", R"({"bos_token": "<m>", "additional_special_tokens": ["<c>"]})");
  write("added_tokens.json", R"({"<b>": 9, "<a>": 8})");
  EXPECT_EQ(encoded(R"({"bos_token": "<s>", "add_bos_token": true})", "<a><b><c>ab"), (Ids{10, 8, 9, 11, 3}));
  EXPECT_EQ(encoded(R"({"bos_token": "<s>", "add_bos_token": true, "added_tokens_decoder": {}})", "ab"),
            (Ids{7, 3}));
}

TEST_F(FolderRules, RefusesUnknownKeysThatSaySomething) {
  EXPECT_EQ(encoded(R"({"odd": null, "a": false, "b": "", "c": [], "d": {}, "model_max_length": 8,
      "tokenizer_class": "Any", "unsloth_fixed": true, "_odd": 1, "errors": "replace"})",
                    "ab"),
            (Ids{3}));
  const std::string two = R"({"lowers": true, "add_dummies": 2, "legacy": true})";
  EXPECT_NE(refusal(two).find(R"(tokenizer_config.json: unknown "add_dummies", "lowers")"), std::string::npos)
      << refusal(two);
  EXPECT_NE(refusal(two).find("ignored keys = add_dummies,lowers"), std::string::npos);
  EXPECT_EQ(encoded(two, "ab", {"lowers", "add_dummies"}), (Ids{3}));
}

TEST_F(FolderRules, RefusesTwoAnswersAboutTheFirstSpace) {
  write("tokenizer.json",
        std::string(R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": )") +
            kModel + "}");
  EXPECT_EQ(encoded(R"({"add_prefix_space": false})", "ab"), (Ids{3}));
  EXPECT_NE(refusal(R"({"add_prefix_space": true})").find("add_prefix_space is false"), std::string::npos);
  EXPECT_EQ(encoded(R"({"add_prefix_space": true})", "ab", {"add_prefix_space"}), (Ids{3}));
}

}  // namespace
}  // namespace moeloom
