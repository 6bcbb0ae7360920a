#include "conversation/members.hpp"

#include "moeloom/base/errors.hpp"
#include "text/learned.hpp"

#include <set>
#include <string>

#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = Tokenizer::load(
      testing::source_root() / "tests/data/text/tokenizers/tiny-bytelevel-qwen2/tokenizer.json");
  return loaded;
}

LearnedIds learned_of(const std::string& source, const std::string& row, const LearnOptions& options = {}) {
  return learned_ids(parse_conversation(row, "f:1"), ChatModel::of(ChatTemplate::parse(source, "t")),
                     tokenizer(), options);
}

/// A user and an assistant that has these members beside.
std::string row_with(const std::string& members, const std::string& columns = "") {
  return R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b")" + members +
         "}]" + columns + "}";
}

TEST(UnreadKeys, NameWhatNobodyReadsAndRefuseTheUnknown) {
  constexpr const char* kSource =
      "{% for m in messages %}{{ m.content }}{{ m.mood }}{{ m.lossy }}{% endfor %}";
  const auto learned = [&](const std::string& member) {
    return learned_of(kSource, row_with(", " + member));
  };
  EXPECT_TRUE(learned(R"("mood": "glad", "stance": null, "parts": [])").unread_keys.empty());
  EXPECT_EQ(learned(R"("thinking": "hm")").unread_keys, std::set<std::string>{"messages[].thinking"});
  for (const char* refused :
       {R"("stance": "odd")", R"("loss": false)", R"("loss": 0.5)", R"("learn": false)"})
    EXPECT_THROW(learned(refused), ConfigError) << refused;
  EXPECT_EQ(learned(R"("tool_calls": [{"function": {"name": "f", "arguments": {}}}])").unread_keys,
            std::set<std::string>{"messages[].tool_calls"});
  EXPECT_EQ(learned_of(kSource, row_with("", R"(, "tools": [{"name": "f"}])")).unread_keys,
            std::set<std::string>{"tools"});
}

TEST(UnreadKeys, TakeRolesThatTheTemplateWrites) {
  const std::string row = R"({"messages": [{"role": "critic", "content": "a"}]})";
  EXPECT_THROW(learned_of("{% for m in messages %}{{ m.content }}{% endfor %}", row), ConfigError);
  EXPECT_NO_THROW(learned_of("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", row));
  EXPECT_NO_THROW(learned_of(
      "{% for m in messages %}{% if m.role == 'critic' %}!{{ m.content }}{% endif %}{% endfor %}", row));
  EXPECT_THROW(learned_of("{# a critic is left out #}{% for m in messages %}{% endfor %}", row), ConfigError);
}

TEST(UnreadKeys, MayBeIgnored) {
  LearnOptions options;
  options.ignored_keys = {"stance"};
  EXPECT_NO_THROW(learned_of("{% for m in messages %}{{ m.content }}{% endfor %}",
                             row_with(R"(, "stance": "odd")"), options));
}

TEST(UnreadKeys, NameSwitchesThatTheTemplateDoesNotHave) {
  LearnOptions options;
  options.variables.push_back({"enable_thinking", {}});
  const std::string source = "{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(
      learned_of(source, row_with("", R"(, "chat_template_kwargs": {"enable_thinkin": false})"), options)
          .unread_keys,
      (std::set<std::string>{"template variable enable_thinkin", "template variable enable_thinking"}));
}

/// BOS and prompt are not learned, the completion and the EOS that the tokenizer adds are.
TEST(LearnedText, LearnsTheEosOfTheTokenizer) {
  const Tokenizer both = Tokenizer::parse(
      R"({"added_tokens": [{"id": 3, "content": "<s>", "special": true}, {"id": 4, "content": "</s>", "special": true}],
          "post_processor": {"type": "BertProcessing", "cls": ["<s>", 3], "sep": ["</s>", 4]},
          "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}})",
      "tokenizer.json");
  LearnOptions options;
  options.end_of_text = 4;
  const LearnedIds learned = learned_ids(parse_conversation(R"({"prompt": "ab", "completion": "c"})", "f:1"),
                                         ChatModel::of(ChatTemplate::parse("", "t")), both, options);
  EXPECT_EQ(learned.ids, (std::vector<std::uint32_t>{3, 0, 1, 2, 4}));
  EXPECT_EQ(learned.learned, (std::vector<std::uint8_t>{0, 0, 0, 1, 1}));
}

}  // namespace
}  // namespace moeloom
