#include "moeloom/text/conversation.hpp"

#include "moeloom/base/errors.hpp"

#include "message.hpp"

namespace moeloom {

const JsonValue* ConversationLine::find(std::string_view key) const {
  const JsonValue* member = line_.find(key);
  return member == nullptr || member->is_null() ? nullptr : member;
}

void ConversationLine::fail(const std::string& reason) const {
  throw IoError(origin_ + ": " + reason);
}

void ConversationLine::fail_type(const std::string& member, const char* expected,
                                 const JsonValue* found) const {
  fail(member + ": expected " + expected + ", found " + (found == nullptr ? "nothing" : described(*found)));
}

const std::string& ConversationLine::text(const JsonValue* value, const std::string& member) const {
  if (value == nullptr || value->text() == nullptr) fail_type(member, "a text", value);
  return *value->text();
}

const JsonValue::Array& ConversationLine::array(const JsonValue* value, const std::string& member) const {
  if (value == nullptr || value->array() == nullptr) fail_type(member, "an array", value);
  return *value->array();
}

JsonValue ConversationLine::array_or_json(const JsonValue& value, const std::string& member) const {
  const JsonValue parsed =
      value.text() == nullptr ? value : parse_json_value(*value.text(), origin_ + ": " + member);
  if (parsed.array() == nullptr) fail_type(member, "an array", &parsed);
  return parsed;
}

JsonValue json_text_value(std::string text) {
  JsonValue value;
  value.value = std::move(text);
  return value;
}

JsonValue message_of(const std::string& role, JsonValue content) {
  JsonValue message;
  message.value = JsonValue::Object{{"role", json_text_value(role)}, {"content", std::move(content)}};
  return message;
}

namespace {

/// Where a role may stand: behind which others. The first message follows "".
bool may_follow(const std::string& role, const std::string& before, bool calls_were_made) {
  if (role == "system" || role == "developer") return before.empty();
  const bool begins = before.empty() || before == "system" || before == "developer";
  if (role == "user") return begins || before == "assistant";
  if (role == "assistant") return before == "user" || before == "tool";
  return calls_were_made && (before == "assistant" || before == "tool");
}

}  // namespace

void check_roles(const ConversationLine& line, const JsonValue::Array& messages) {
  if (messages.empty()) line.fail("the conversation is empty");
  std::string before;
  bool calls_were_made = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = *messages[i].find("role")->text();
    const std::string member = "messages[" + std::to_string(i) + "]";
    if (!may_follow(role, before, calls_were_made)) {
      const std::string place = before.empty() ? "first" : "behind " + before;
      line.fail(member + ": roles out of order: " + role + " stands " + place +
                (role == "tool" && !calls_were_made ? ", where no tool was called" : ""));
    }
    if (role == "assistant") {
      const JsonValue* calls = messages[i].find("tool_calls");
      calls_were_made = calls != nullptr && calls->array() != nullptr && !calls->array()->empty();
    }
    before = role;
  }
  if (before == "system" || before == "developer")
    line.fail("the conversation is empty: " + before + " stands alone");
}

Conversation parse_conversation(std::string_view text, const std::string& origin) {
  const JsonValue json = parse_json_value(text, origin);
  const ConversationLine line(json, origin);
  if (json.object() == nullptr) line.fail("expected an object, found " + described(json));
  Conversation conversation;
  if (line.find("messages") != nullptr) {
    conversation = read_openai(line);
  } else if (line.find("conversations") != nullptr) {
    conversation = read_sharegpt(line);
  } else if (line.find("instruction") != nullptr) {
    conversation = read_alpaca(line);
  } else if (const JsonValue* plain = line.find("text")) {
    conversation.text = line.text(plain, "text");
    if (conversation.text->empty()) line.fail("text: expected at least one character");
    return conversation;
  } else {
    line.fail("expected one of the keys messages, conversations, instruction, text");
  }
  check_roles(line, conversation.messages);
  return conversation;
}

}  // namespace moeloom
