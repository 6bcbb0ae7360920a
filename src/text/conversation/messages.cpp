// Messages as they are read: checked member by member.
#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "message.hpp"

namespace moeloom {
namespace {

/// {"type": "text", "text"}, or a text by itself. What else a part says could be that it is learned or not.
void check_part(const ConversationLine& line, const JsonValue& part, const std::string& member) {
  if (part.text() != nullptr) return;
  if (part.object() == nullptr) line.fail_type(member, "an object", &part);
  const JsonValue* type = part.find("type");
  if (type != nullptr && (type->text() == nullptr || *type->text() != "text"))
    line.fail(member + ": a part of type " + described(*type) + ": only parts of text are read");
  line.text(part.find("text"), member + ".text");
  constexpr std::string_view kWithoutEffect[] = {"type", "text", "cache_control", "annotations", "citations"};
  std::vector<std::string> unknown;
  for (const auto& [name, value] : *part.object())
    if (std::ranges::count(kWithoutEffect, name) == 0 && !line.ignores(name) &&
        (!says_nothing(value) || could_say_what_is_learned(name)))
      unknown.push_back(name);
  if (!unknown.empty())
    line.fail(member + ": unknown keys of a part: " + joined(unknown) + way_around(unknown));
}

void check_content(const ConversationLine& line, const JsonValue& message, const std::string& member) {
  const JsonValue* content = message.find("content");
  const bool may_lack = message.find("tool_calls") != nullptr ||
                        message.find("reasoning_content") != nullptr || message.find("thinking") != nullptr;
  if (content == nullptr || content->is_null()) {
    if (!may_lack) line.fail_type(member + ".content", "a text or an array of parts", content);
    return;
  }
  if (content->text() != nullptr) return;
  const JsonValue::Array* parts = content->array();
  if (parts == nullptr && *message.find("role")->text() == "tool")
    return;  // some tools answer with an object
  if (parts == nullptr) line.fail_type(member + ".content", "a text or an array of parts", content);
  for (std::size_t i = 0; i < parts->size(); ++i)
    check_part(line, (*parts)[i], member + "." + place("content", i));
}

/// What a turn says of being learned, taken out of it: a template does not read it.
std::optional<bool> take_weight(const ConversationLine& line, JsonValue& turn, const std::string& member) {
  std::optional<bool> learned;
  for (const std::string_view key : kTurnWeights) {
    const JsonValue* found = turn.find(key);
    if (found == nullptr) continue;
    const std::string name = member + "." + std::string(key);
    std::optional<bool> says;
    if (found->boolean() != nullptr) says = *found->boolean();
    if (found->integer() != nullptr && (*found->integer() == 0 || *found->integer() == 1))
      says = *found->integer() == 1;
    if (found->number() != nullptr && (*found->number() == 0 || *found->number() == 1))
      says = *found->number() == 1;
    if (!says && !found->is_null())
      line.fail(name + ": expected true or false, 1 or 0, found " + described(*found));
    if (says && learned && *says != *learned)
      line.fail(name + " = " + described(*found) + " contradicts what the turn says before");
    if (says) learned = says;
    std::erase_if(std::get<JsonValue::Object>(turn.value),
                  [&](const auto& each) { return each.name == key; });
  }
  return learned;
}

}  // namespace

std::string place(const char* list, std::size_t i, const char* member) {
  return std::string(list) + "[" + std::to_string(i) + "]" +
         (member == nullptr ? "" : std::string(".") + member);
}

void check_call(const ConversationLine& line, JsonValue& call, const std::string& member) {
  if (call.object() == nullptr) line.fail_type(member, "an object", &call);
  JsonValue* function = member_of(call, "function");
  if (function != nullptr && function->object() == nullptr)
    line.fail_type(member + ".function", "an object", function);
  JsonValue& holder = function == nullptr ? call : *function;
  line.text(holder.find("name"), member + (function == nullptr ? ".name" : ".function.name"));
}

void add_message(const ConversationLine& line, JsonValue message, const std::string& member,
                 Conversation& conversation) {
  const std::optional<bool> learned = take_weight(line, message, member);
  if (learned == true && *message.find("role")->text() != "assistant")
    line.fail(member + " is to be learned, but " + *message.find("role")->text() +
              " says it: only what an assistant says is learned");
  conversation.messages.push_back(std::move(message));
  conversation.learned.push_back(learned);
}

JsonValue checked_message(const ConversationLine& line, JsonValue message, const std::string& member) {
  if (message.object() == nullptr) line.fail_type(member, "an object", &message);
  if (line.text(message.find("role"), member + ".role").empty()) line.fail(member + ".role: it is empty");
  JsonValue* calls = member_of(message, "tool_calls");
  if (calls != nullptr && !calls->is_null()) {
    line.array(calls, member + ".tool_calls");
    auto& list = std::get<JsonValue::Array>(calls->value);
    for (std::size_t call = 0; call < list.size(); ++call)
      check_call(line, list[call], member + "." + place("tool_calls", call));
  }
  check_content(line, message, member);
  return message;
}

}  // namespace moeloom
