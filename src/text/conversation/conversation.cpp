#include "moeloom/text/conversation.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

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
  if (conversation.text->empty()) line.fail("text: expected at least one character");
  return conversation;
}

const Shape kShapes[] = {{"messages", read_messages, {}},
                         {"conversations", read_sharegpt, {"system"}},
                         {"instruction", read_alpaca, {"input", "output", "system", "history"}},
                         {"query", read_query, {"response", "system", "history"}},
                         {"completion", read_completion, {"prompt"}},
                         {"text", read_plain, {}}};

std::string joined(const auto& names, const char* between = ", ") {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : between) + std::string(name);
  return text;
}

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

/// By its name, or as a list of masks.
bool could_mean_something(const std::string& name, const JsonValue& value) {
  if (could_say_what_is_learned(name)) return true;
  if (value.array() == nullptr || value.array()->empty()) return false;
  return std::ranges::all_of(*value.array(), [](const JsonValue& each) {
    return each.boolean() != nullptr || each.integer() != nullptr || each.number() != nullptr;
  });
}

/// Names of the columns that are neither read nor refused.
std::vector<std::string> other_columns(const ConversationLine& line, const Shape& shape) {
  constexpr std::string_view kBeside[] = {"tools", "chat_template_kwargs"};
  std::vector<std::string> others, refused;
  for (const auto& [name, value] : line.members()) {
    const bool is_read = name == shape.key || std::ranges::count(shape.keys, name) > 0 ||
                         std::ranges::count(kBeside, name) > 0;
    if (is_read || value.is_null() || (says_nothing(value) && !could_say_what_is_learned(name))) continue;
    (could_mean_something(name, value) ? refused : others).push_back(name);
  }
  if (!refused.empty())
    line.fail("unknown keys that may say what is learned: " + joined(refused) + way_around(refused));
  return others;
}

JsonValue tools_of(const ConversationLine& line) {
  const JsonValue* tools = line.find("tools");
  if (tools == nullptr || (tools->text() != nullptr && tools->text()->empty())) return {};
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

/// In a row, and in the objects of its lists, which are turns.
void take_out(const std::set<std::string>& keys, JsonValue& value, int depth = 0) {
  if (auto* list = std::get_if<JsonValue::Array>(&value.value))
    for (JsonValue& each : *list) take_out(keys, each, depth + 1);
  auto* object = std::get_if<JsonValue::Object>(&value.value);
  if (object == nullptr) return;
  std::erase_if(*object, [&](const JsonValue::Member& each) { return keys.contains(each.name); });
  if (depth == 0)
    for (JsonValue::Member& each : *object) take_out(keys, each.value, depth + 1);
}

}  // namespace

bool says_nothing(const JsonValue& value) {
  return value.is_null() || (value.boolean() != nullptr && !*value.boolean()) ||
         (value.text() != nullptr && value.text()->empty()) ||
         (value.array() != nullptr && value.array()->empty()) ||
         (value.object() != nullptr && value.object()->empty());
}

bool could_say_what_is_learned(std::string_view name) {
  for (const std::string_view word : {"weight", "mask", "label", "loss", "train"})
    if (name.find(word) != std::string_view::npos) return true;
  return false;
}

std::string way_around(const std::vector<std::string>& keys) {
  return "; ignored keys = " + joined(keys, ",") + " reads on without " + (keys.size() == 1 ? "it" : "them");
}

Conversation parse_conversation(std::string_view text, const std::string& origin,
                                const std::set<std::string>& ignored) {
  JsonValue json = parse_json_value(text, origin);
  if (!ignored.empty()) take_out(ignored, json);
  const ConversationLine line(json, origin);
  if (json.object() == nullptr) line.fail("expected an object, found " + described(json));
  if (line.find("chosen") != nullptr && line.find("rejected") != nullptr)
    line.fail("chosen, rejected: training on preferences is not supported; give one answer as a completion");
  const Shape& shape = shape_of(line);
  Conversation conversation = shape.read(line);
  if (!conversation.text && conversation.messages.empty()) line.fail("the conversation is empty");
  conversation.tools = tools_of(line);
  conversation.template_variables = template_variables(line, origin);
  conversation.other_columns = other_columns(line, shape);
  return conversation;
}

}  // namespace moeloom
