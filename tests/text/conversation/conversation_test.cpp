#include "text/conversation.hpp"

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
  EXPECT_EQ(*call.find("function")->find("arguments")->text(), R"({"b": 1, "a": [2.50]})");
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

TEST(Conversation, ReadsConversationsOfRoleAndContentAndQueries) {
  const Conversation turns = parse_conversation(
      R"({"conversations": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a"}]})",
      "f:1");
  EXPECT_EQ(roles_of(turns), "user assistant ");
  const Conversation query = parse_conversation(
      R"({"query": "hi", "response": "hello", "system": "s", "history": [["q", "a"]], "id": 7, "url": "x", "mark": null})",
      "f:1");
  EXPECT_EQ(roles_of(query), "system user assistant user assistant ");
  EXPECT_EQ(content_of(query, 4), "hello");
  EXPECT_EQ(query.other_columns, (std::vector<std::string>{"id", "url"}));
}

TEST(Conversation, LeavesOutTheKeysThatAreIgnored) {
  const std::string row =
      R"({"messages": [{"role": "user", "content": "a"}], "sample_weight": 2, "labels": [1, 0]})";
  EXPECT_THROW(parse_conversation(row, "f:1"), IoError);
  EXPECT_TRUE(parse_conversation(row, "f:1", {"sample_weight", "labels"}).other_columns.empty());
}

/// A column is ignored as a column: what turns say of their weight is read all the same.
TEST(Conversation, KeepsTheWeightsOfTurnsBesideAnIgnoredColumn) {
  const Conversation read = parse_conversation(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}],
          "weight": 1.5})",
      "f:1", {"weight"});
  EXPECT_EQ(read.learned[1], false);
}

TEST(Conversation, TakesOneSystemPromptThatIsSaidTwice) {
  const Conversation read = parse_conversation(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}], "system": "s",
          "tools": false, "history": ""})",
      "f:1");
  EXPECT_EQ(roles_of(read), "system user ");
  EXPECT_TRUE(read.tools.is_null());
}

TEST(Conversation, TakesTheSystemPromptBesideMessages) {
  const Conversation read =
      parse_conversation(R"({"messages": [{"role": "user", "content": "a"}], "system": "s"})", "f:1");
  EXPECT_EQ(roles_of(read), "system user ");
  EXPECT_EQ(content_of(read, 0), "s");
}

TEST(Conversation, ReadsRowsWithNumbersThatPythonAloneWrites) {
  const Conversation read =
      parse_conversation(R"({"text": "a \"NaN\" \\", "score": NaN, "low": -Infinity})", "f:1");
  EXPECT_EQ(read.text, "a \"NaN\" \\");
  EXPECT_EQ(parse_conversation(R"({"text": "\u0001a", "score": NaN})", "f:1").text,
            "\x01"
            "a");
  EXPECT_EQ(read.other_columns, (std::vector<std::string>{"score", "low"}));
  for (const char* row : {R"({"text": NaN})", R"({"instruction": "a", "input": NaN, "output": "b"})",
                          R"({"text": "a", "marks": [NaN, 1]})"})
    EXPECT_THROW(parse_conversation(row, "f:1"), IoError) << row;
}

TEST(Conversation, NamesColumnsByWholeWords) {
  const Conversation read = parse_conversation(
      R"({"text": "a", "constraints": "x", "glossary": "y", "flag": false, "empty": "", "score": 0.5, "trainer": "z",
          "preferred_language": "en", "rejected": "", "label": "", "labels": [], "images": [], "audio": false,
          "tools": "hammer"})",
      "f:1");
  EXPECT_EQ(read.other_columns,
            (std::vector<std::string>{"constraints", "glossary", "flag", "score", "trainer",
                                      "preferred_language", "audio", "tools"}));
  for (const char* column : {R"("learnable": true)", R"("loss1": 0.5)", R"("lossWeight": 1)",
                             R"("label": false)", R"("enable_thinking": false)"})
    EXPECT_THROW(parse_conversation(std::string(R"({"text": "a", )") + column + "}", "f:1"), IoError)
        << column;
}

TEST(Conversation, TakesWhatShareGptSaysTwiceIfItIsTheSame) {
  const auto row = [](const std::string& members) {
    return R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", )" + members +
           "}]}";
  };
  const Conversation read =
      parse_conversation(row(R"("role": "assistant", "content": "b", "mood": "glad")"), "f:1");
  EXPECT_EQ(read.messages[1].object()->size(), 3U);
  for (const char* other : {R"("role": "user")", R"("content": "c")", R"("tool_calls": [5])",
                            R"("tool_calls": [{"x": 1}])", R"("tool_calls": [{"function": 5}])"})
    EXPECT_THROW(parse_conversation(row(other), "f:1"), IoError) << other;
}

TEST(Conversation, ReadsPromptsAndTheirCompletions) {
  const Conversation text = parse_conversation(R"({"prompt": "2+2=", "completion": "4"})", "f:1");
  EXPECT_EQ(text.text, "2+2=4");
  EXPECT_EQ(text.prompt, 4U);
  const Conversation messages = parse_conversation(
      R"({"prompt": [{"role": "user", "content": "hi"}], "completion": [{"role": "assistant", "content": "a"}]})",
      "f:1");
  EXPECT_EQ(roles_of(messages), "user assistant ");
  EXPECT_EQ(messages.prompt, 1U);
}

TEST(Conversation, TakesWhatATurnSaysOfBeingLearnedOutOfTheMessage) {
  for (const std::string key : {"weight", "train", "loss_mask", "trainable"})
    for (const auto& [zero, one] :
         {std::pair("0", "1"), std::pair("false", "true"), std::pair("0.0", "1.0")}) {
      const Conversation read = parse_conversation(
          R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "no", ")" +
              key + "\": " + zero + R"(}, {"role": "assistant", "content": "yes", ")" + key + "\": " + one +
              "}]}",
          "f:1");
      EXPECT_EQ(read.learned, (std::vector<std::optional<bool>>{std::nullopt, false, true})) << key;
      EXPECT_EQ(read.messages[1].find(key), nullptr);
    }
  const Conversation turns = parse_conversation(
      R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "no", "weight": 0}]})",
      "f:1");
  EXPECT_EQ(turns.learned.back(), false);
}

TEST(Conversation, ReadsVariablesOfTheTemplateAsAnObjectOrAsText) {
  for (const std::string given : {R"({"enable_thinking": false})", R"("{\"enable_thinking\": false}")"}) {
    const Conversation read = parse_conversation(
        R"({"query": "a", "response": "b", "chat_template_kwargs": )" + given + "}", "f:1");
    ASSERT_EQ(read.template_variables.size(), 1U);
    EXPECT_EQ(read.template_variables[0].name, "enable_thinking");
  }
}

TEST(Conversation, NamesFileLineAndReason) {
  const std::string user = R"({"role": "user", "content": "u"})";
  const auto messages = [](const std::string& list) { return R"({"messages": [)" + list + "]}"; };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "chats.jsonl:7"},
      {"[]", "chats.jsonl:7: expected an object, found an array of 0"},
      {"{}",
       "chats.jsonl:7: expected one of the keys messages, conversations, instruction, query, completion, "
       "text; "
       "found none"},
      {R"({"conversation": []})",
       "chats.jsonl:7: expected one of the keys messages, conversations, instruction, "
       "query, completion, text; found conversation"},
      {R"({"messages": null})", "chats.jsonl:7: expected one of the keys"},
      {messages(""), "chats.jsonl:7: the conversation is empty"},
      {R"({"messages": {}})", "chats.jsonl:7: messages: expected an array, found an object"},
      {messages("7"), "chats.jsonl:7: messages[0]: expected an object, found 7"},
      {messages(R"({"content": "x"})"), "chats.jsonl:7: messages[0].role: expected a text, found nothing"},
      {messages(R"({"role": "user"})"),
       "chats.jsonl:7: messages[0].content: expected a text or an array of parts"},
      {messages(R"({"role": "user", "content": 3})"), "chats.jsonl:7: messages[0].content: expected a text"},
      {messages(R"({"role": "user", "content": [{"type": "image", "image": "x.png"}]})"),
       "chats.jsonl:7: messages[0].content[0]: a part of type \"image\": only parts of text are read"},
      {messages(R"({"role": "assistant", "content": "a", "weight": 0.5})"),
       "chats.jsonl:7: messages[0].weight: expected true or false, 1 or 0, found 0.5"},
      {messages(R"({"role": "assistant", "content": "a", "weight": 1, "train": false})"),
       "chats.jsonl:7: messages[0].train = false contradicts what the turn says before"},
      {messages(R"({"role": "user", "content": "a", "train": true})"),
       "chats.jsonl:7: messages[0] is to be learned, but user says it"},
      {R"({"prompt": "a", "completion": "b", "label": false})",
       "chats.jsonl:7: unknown keys that may say what is learned: label"},
      {R"({"text": "a", "loss_mask": [0, 1]})",
       "chats.jsonl:7: unknown keys that may say what is learned: loss_mask"},
      {R"({"text": "a", "numbers": [0, 1]})",
       "chats.jsonl:7: unknown keys that may say what is learned: numbers"},
      {R"({"prompt": "a", "chosen": "b", "rejected": "c"})",
       "chats.jsonl:7: chosen, rejected: training on preferences"},
      {R"({"text": "a", "rejected_response": "b"})",
       "chats.jsonl:7: rejected_response: training on preferences"},
      {R"({"instruction": "a", "output": "b", "kto_tag": false})",
       "chats.jsonl:7: kto_tag: training on preferences"},
      {R"({"instruction": "a", "output": "b", "system_prompt": "s"})",
       "chats.jsonl:7: unknown keys that may belong into the text: system_prompt"},
      {R"({"text": "a", "images": ["b.png"]})",
       "chats.jsonl:7: unknown keys that may belong into the text: images; ignored keys = images"},
      {R"({"text": "a", "lossMask": "0 1"})",
       "chats.jsonl:7: unknown keys that may say what is learned: lossMask"},
      {R"({"messages": [{"role": "system", "content": "a"}], "system": "b"})",
       "chats.jsonl:7: system and the first of messages are two system prompts"},
      {messages(R"({"role": "assistant", "content": [{"type": "text", "text": "a", "train": false}]})"),
       "chats.jsonl:7: messages[0].content[0]: unknown keys of a part: train; ignored keys = train"},
      {messages(R"({"role": "user", "content": [{"text": "a", "image": "b.png"}]})"),
       "chats.jsonl:7: messages[0].content[0]: unknown keys of a part: image"},
      {R"({"messages": [)" + user + R"(], "chat_template_kwargs": 3})",
       "chats.jsonl:7: chat_template_kwargs: expected an object, found 3"},
      {messages(user + R"(,{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": 1}}]})"),
       "chats.jsonl:7: messages[1].tool_calls[0].function.name: expected a text, found 1"},
      {R"({"conversations": [{"from": "alien", "value": "x"}]})",
       "chats.jsonl:7: conversations[0].from: expected human"},
      {R"({"conversations": [{"from": "human"}]})", "chats.jsonl:7: conversations[0].value: expected a text"},
      {R"({"instruction": "x"})", "chats.jsonl:7: output: expected a text, found nothing"},
      {R"({"instruction": "x", "output": "y", "history": [["q"]]})",
       "chats.jsonl:7: history[0]: expected two texts"},
      {R"({"text": ["a"]})", "chats.jsonl:7: text: expected a text, found an array of 1"},
      {R"({"messages": [)" + user + R"(], "tools": 5})", "chats.jsonl:7: tools: expected an array, found 5"},
  };
  for (const auto& [line, reason] : cases)
    EXPECT_TRUE(error_of(line).starts_with(reason)) << line << "\n" << error_of(line);
}

}  // namespace
}  // namespace moeloom
