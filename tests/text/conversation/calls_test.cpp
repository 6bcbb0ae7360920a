#include "conversation/calls.hpp"

#include <string>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// What a template writes of an assistant that calls f with these arguments, which stand in the row as JSON.
std::string written(const std::string& source, const std::string& arguments) {
  const Conversation conversation = parse_conversation(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls":
          [{"function": {"name": "f", "arguments": )" +
          arguments + "}}]}]}",
      "f:1");
  const ChatTemplate chat_template = ChatTemplate::parse(source, "t");
  return assistant_text(with_calls_as_taken(conversation, chat_template, {}), chat_template,
                        {.rule = LearnRule::kAll})
      .text;
}

constexpr const char* kObject = R"({"x": 1.0, "u": "\u00e9"})";
constexpr const char* kText = R"("{\"x\":1.0,\"u\":\"\\u00e9\"}")";  // as JSON.stringify writes it
constexpr const char* kCall = "{% set a = messages[1].tool_calls[0].function.arguments %}";

// The texts are those of apply_chat_template of transformers 5.15; where it fails, of the other form of
// arguments.
TEST(Calls, TextsStandAsTheyAreWhereTheTemplatePrintsTexts) {
  const std::string both =
      std::string(kCall) + "{% if a is string %}{{ a }}{% else %}{{ a | tojson }}{% endif %}";
  EXPECT_EQ(written(both, kText), R"({"x":1.0,"u":"\u00e9"})");
  EXPECT_EQ(written(both, kObject), R"({"x": 1.0, "u": "é"})");
}

TEST(Calls, AreObjectsWhereTheTemplateWalksThroughThem) {
  for (const std::string& walk :
       {std::string(kCall) + "{% for k, v in a.items() %}{{ k }}={{ v }};{% endfor %}",
        std::string(kCall) +
            "{% if a is mapping %}{% for k, v in a.items() %}{{ k }}={{ v }};{% endfor %}{% endif %}"})
    for (const char* arguments : {kText, kObject}) EXPECT_EQ(written(walk, arguments), "x=1.0;u=é;") << walk;
  EXPECT_EQ(written(std::string(kCall) + "{{ a | tojson }}", kText), R"({"x": 1.0, "u": "é"})")
      << "a text would be quoted once more";
}

/// Whatever else the row says: the same text in a question, or no argument at all.
TEST(Calls, AreToldByTheTemplateAlone) {
  EXPECT_EQ(written(std::string(kCall) + "{{ a | tojson }}", R"("{}")"), "{}");
  EXPECT_EQ(written("{\"x\":1.0}" + std::string(kCall) + "{{ a | tojson }}", R"("{\"x\":1.0}")"),
            R"({"x":1.0}{"x": 1.0})");
}

TEST(Calls, AreTextsWhereTheTemplateJoinsThem) {
  const std::string joins = std::string(kCall) + "{{ '<' + a + '>' }}";
  EXPECT_EQ(written(joins, kText), R"(<{"x":1.0,"u":"\u00e9"}>)");
  EXPECT_EQ(written(joins, kObject), R"(<{"x": 1.0, "u": "é"}>)");
  EXPECT_EQ(written(joins, R"("own words")"), "<own words>");
}

}  // namespace
}  // namespace moeloom
