#include "text/conversation.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <limits>

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

struct Shape {
  const char* key;  // by which it is told
  Conversation (*read)(const ConversationLine& line);
  std::vector<std::string_view> keys;  // that it reads beside
};

Conversation read_messages(const ConversationLine& line) {
  return read_openai(line, "messages");
}
Conversation read_plain(const ConversationLine& line) {
  Conversation conversation;
  conversation.text = line.text(line.find("text"), "text");
  return conversation;
}

const Shape kShapes[] = {{"messages", read_messages, {"system"}},
                         {"conversations", read_sharegpt, {"system"}},
                         {"instruction", read_alpaca, {"input", "output", "system", "history"}},
                         {"query", read_query, {"response", "system", "history"}},
                         {"completion", read_completion, {"prompt"}},
                         {"text", read_plain, {}}};

const Shape& shape_of(const ConversationLine& line) {
  std::vector<std::string> known, found;
  for (const Shape& shape : kShapes) {
    if (line.find(shape.key) != nullptr) return shape;
    known.push_back(shape.key);
  }
  for (const auto& [name, value] : line.members()) found.push_back(name);
  line.fail("expected one of the keys " + joined(known) + "; found " +
            (found.empty() ? "none" : joined(found)));
}

JsonValue tools_of(const ConversationLine& line) {
  const JsonValue* tools = line.find("tools");
  if (tools == nullptr || says_nothing(*tools)) return {};
  const bool is_word =
      tools->text() != nullptr && (trimmed(*tools->text()).empty() || trimmed(*tools->text()) == "null");
  if (is_word) return {};
  JsonValue list = line.array_or_json(*tools, "tools");
  return list.array()->empty() ? JsonValue() : list;
}

/// As an object, or as a text that holds one.
JsonValue::Object template_variables(const ConversationLine& line, const std::string& origin) {
  constexpr const char* kKey = "chat_template_kwargs";
  const JsonValue* given = line.find(kKey);
  if (given == nullptr) return {};
  const JsonValue parsed =
      given->text() == nullptr ? *given : parse_json_value(*given->text(), origin + ": " + kKey);
  if (parsed.object() == nullptr) line.fail_type(kKey, "an object", &parsed);
  return *parsed.object();
}

/// Begins a text that stands for a number that JSON does not have; no text of a row has it.
constexpr char kNumber = '\x01';

/// Python writes such numbers bare.
std::string with_numbers_as_texts(std::string_view text) {
  std::string quoted;
  bool in_text = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    std::size_t length = 1;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
      if (!in_text && rest.starts_with(word)) length = word.size();
    if (in_text && rest.starts_with('\\')) length = std::min<std::size_t>(2, rest.size());
    if (rest.starts_with('"')) in_text = !in_text;
    const std::string piece(rest.substr(0, length));
    quoted += !in_text && length > 1 ? "\"\\u0001" + piece + '"' : piece;
    at += length;
  }
  return quoted;
}

void make_numbers(JsonValue& value) {
  if (auto* list = std::get_if<JsonValue::Array>(&value.value))
    for (JsonValue& each : *list) make_numbers(each);
  if (auto* object = std::get_if<JsonValue::Object>(&value.value))
    for (JsonValue::Member& each : *object) make_numbers(each.value);
  if (value.text() == nullptr || !value.text()->starts_with(kNumber)) return;
  const std::string_view word = std::string_view(*value.text()).substr(1);
  const double infinity = std::numeric_limits<double>::infinity();
  if (word == "NaN") value.value = std::numeric_limits<double>::quiet_NaN();
  if (word == "Infinity") value.value = infinity;
  if (word == "-Infinity") value.value = -infinity;
}

JsonValue parsed_row(std::string_view text, const std::string& origin) {
  try {
    return parse_json_value(text, origin);
  } catch (const IoError&) {
    const std::string quoted = with_numbers_as_texts(text);
    if (quoted == text) throw;
    JsonValue row = parse_json_value(quoted, origin);
    make_numbers(row);
    return row;
  }
}

}  // namespace

Conversation parse_conversation(std::string_view text, const std::string& origin,
                                const std::set<std::string>& ignored) {
  JsonValue json = parsed_row(text, origin);
  if (auto* row = std::get_if<JsonValue::Object>(&json.value))
    std::erase_if(*row, [&](const JsonValue::Member& each) { return ignored.contains(each.name); });
  const ConversationLine line(json, origin, ignored);
  if (json.object() == nullptr) line.fail("expected an object, found " + described(json));
  require_no_preference(line);
  const Shape& shape = shape_of(line);
  Conversation conversation = shape.read(line);
  if (!conversation.text && conversation.messages.empty()) line.fail("the conversation is empty");
  std::vector<std::string_view> read = {shape.key};
  read.insert(read.end(), shape.keys.begin(), shape.keys.end());
  if (!conversation.text) {
    conversation.tools = tools_of(line);
    conversation.template_variables = template_variables(line, origin);
    read.insert(read.end(), {"tools", "chat_template_kwargs"});
  }
  conversation.other_columns = other_columns(line, read);
  return conversation;
}

}  // namespace moeloom
