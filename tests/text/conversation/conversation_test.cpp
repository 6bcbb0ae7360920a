#include "moeloom/text/conversation.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::string roles_of(const Conversation& conversation) {
  std::string roles;
  for (const JsonValue& message : conversation.messages) roles += *message.find("role")->text() + " ";
  return roles;
}

std::string content_of(const Conversation& conversation, std::size_t i) {
  return *conversation.messages.at(i).find("content")->text();
}

std::string error_of(const std::string& line) {
  try {
    return "no error, but " + roles_of(parse_conversation(line, "chats.jsonl:7"));
  } catch (const IoError& error) {
    return error.what();
  }
}

TEST(Conversation, ReadsOpenAiMessagesWithEveryMemberInItsOrder) {
  const Conversation read = parse_conversation(
      R"({"messages": [{"role": "system", "content": "s"}, {"name": "n", "role": "user", "content": "u"},
          {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
           "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [2.50]}"}}]},
          {"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "assistant", "content": "done"}],
          "tools": [{"type": "function"}], "source": "x"})",
      "f:1");
  EXPECT_EQ(roles_of(read), "system user assistant tool assistant ");
  EXPECT_EQ((*read.messages[1].object())[0].name, "name");
  const JsonValue& call = (*read.messages[2].find("tool_calls")->array())[0];
  const JsonValue* arguments = call.find("function")->find("arguments");
  ASSERT_NE(arguments->object(), nullptr);
  EXPECT_EQ((*arguments->object())[0].name, "b");
  EXPECT_EQ(read.tools.array()->size(), 1U);
  EXPECT_FALSE(read.text);
}

TEST(Conversation, ReadsShareGptWithCallsAndTheirAnswers) {
  const Conversation read = parse_conversation(
      R"({"conversations": [{"from": "human", "value": "u"},
          {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
          {"from": "observation", "value": "3"}, {"from": "gpt", "value": "a"}],
          "system": "s", "tools": "[{\"name\": \"f\"}]"})",
      "f:1");
  EXPECT_EQ(roles_of(read), "system user assistant tool assistant ");
  const JsonValue& call = (*read.messages[2].find("tool_calls")->array())[0];
  EXPECT_EQ(*call.find("function")->find("name")->text(), "f");
  EXPECT_TRUE(read.messages[2].find("content")->is_null());
  EXPECT_EQ(read.tools.array()->size(), 1U);
  EXPECT_EQ(content_of(read, 4), "a");
}

TEST(Conversation, ReadsAlpacaWithItsHistory) {
  const Conversation read = parse_conversation(
      R"({"instruction": "Add.", "input": "1 2", "output": "3", "system": "", "history": [["q", "a"]]})",
      "f:1");
  EXPECT_EQ(roles_of(read), "user assistant user assistant ");
  EXPECT_EQ(content_of(read, 2), "Add.\n1 2");
  EXPECT_EQ(content_of(read, 3), "3");
  EXPECT_EQ(content_of(parse_conversation(R"({"instruction": "Go.", "input": "", "output": ""})", "f:1"), 0),
            "Go.");
}

TEST(Conversation, ReadsPlainText) {
  const Conversation read = parse_conversation(R"({"text": "In the beginning", "id": 1})", "f:1");
  EXPECT_EQ(read.text, "In the beginning");
  EXPECT_TRUE(read.messages.empty());
}

TEST(Conversation, NamesFileLineAndReason) {
  const std::string user = R"({"role": "user", "content": "u"})";
  const std::string assistant = R"({"role": "assistant", "content": "a"})";
  const std::string tool = R"({"role": "tool", "content": "t"})";
  const std::string system = R"({"role": "system", "content": "s"})";
  const auto messages = [](const std::string& list) { return R"({"messages": [)" + list + "]}"; };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "chats.jsonl:7"},
      {"[]", "chats.jsonl:7: expected an object, found an array of 0"},
      {"{}", "chats.jsonl:7: expected one of the keys messages, conversations, instruction, text"},
      {R"({"messages": null})", "chats.jsonl:7: expected one of the keys"},
      {messages(""), "chats.jsonl:7: the conversation is empty"},
      {messages(system), "chats.jsonl:7: the conversation is empty: system stands alone"},
      {R"({"messages": {}})", "chats.jsonl:7: messages: expected an array, found an object"},
      {messages("7"), "chats.jsonl:7: messages[0]: expected an object, found 7"},
      {messages(R"({"content": "x"})"), "chats.jsonl:7: messages[0].role: expected a text, found nothing"},
      {messages(R"({"role": "user"})"),
       "chats.jsonl:7: messages[0].content: expected a text or an array of parts"},
      {messages(R"({"role": "user", "content": 3})"), "chats.jsonl:7: messages[0].content: expected a text"},
      {messages(R"({"role": "ghost", "content": ""})"),
       "chats.jsonl:7: messages[0].role: expected system, developer"},
      {messages(assistant), "chats.jsonl:7: messages[0]: roles out of order: assistant stands first"},
      {messages(user + "," + user),
       "chats.jsonl:7: messages[1]: roles out of order: user stands behind user"},
      {messages(user + "," + assistant + "," + assistant), "chats.jsonl:7: messages[2]: roles out of order"},
      {messages(user + "," + system),
       "chats.jsonl:7: messages[1]: roles out of order: system stands behind user"},
      {messages(user + "," + assistant + "," + tool),
       "chats.jsonl:7: messages[2]: roles out of order: tool stands behind assistant, where no tool was "
       "called"},
      {messages(user + R"(,{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": 1}}]})"),
       "chats.jsonl:7: messages[1].tool_calls[0].function.name: expected a text, found 1"},
      {R"({"conversations": [{"from": "alien", "value": "x"}]})",
       "chats.jsonl:7: conversations[0].from: expected human"},
      {R"({"conversations": [{"from": "human"}]})", "chats.jsonl:7: conversations[0].value: expected a text"},
      {R"({"instruction": "x"})", "chats.jsonl:7: output: expected a text, found nothing"},
      {R"({"instruction": "x", "output": "y", "history": [["q"]]})",
       "chats.jsonl:7: history[0]: expected two texts"},
      {R"({"text": ""})", "chats.jsonl:7: text: expected at least one character"},
      {R"({"text": ["a"]})", "chats.jsonl:7: text: expected a text, found an array of 1"},
      {R"({"messages": [)" + user + R"(], "tools": {}})",
       "chats.jsonl:7: tools: expected an array, found an object"},
  };
  for (const auto& [line, reason] : cases)
    EXPECT_TRUE(error_of(line).starts_with(reason)) << line << "\n" << error_of(line);
}

}  // namespace
}  // namespace moeloom
