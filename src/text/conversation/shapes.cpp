// The shapes of a conversation, each as messages of OpenAI's.
#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "message.hpp"

namespace moeloom {
namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

struct Speaker {
  std::string_view from;
  const char* role;
};
constexpr Speaker kSpeakers[] = {{"human", "user"},
                                 {"user", "user"},
                                 {"gpt", "assistant"},
                                 {"assistant", "assistant"},
                                 {"chatgpt", "assistant"},
                                 {"bing", "assistant"},
                                 {"bard", "assistant"},
                                 {"model", "assistant"},
                                 {"system", "system"},
                                 {"observation", "tool"},
                                 {"tool", "tool"},
                                 {"function_response", "tool"},
                                 {"function_call", "assistant"}};

std::string place(const char* list, std::size_t i, const char* member = nullptr) {
  return std::string(list) + "[" + std::to_string(i) + "]" +
         (member == nullptr ? "" : std::string(".") + member);
}

JsonValue* member_of(JsonValue& value, std::string_view key) {
  return const_cast<JsonValue*>(value.find(key));
}

/// JSON that holds an object or an array, parsed; any other text as it is.
JsonValue arguments_of(const JsonValue& arguments, const std::string& member) {
  if (arguments.text() == nullptr) return arguments;
  const std::size_t first = arguments.text()->find_first_not_of(" \t\r\n");
  if (first == std::string::npos || (*arguments.text())[first] != '{') return arguments;
  try {
    return parse_json_value(*arguments.text(), member);
  } catch (const IoError&) {
    return arguments;  // a model's own words, which the template prints
  }
}

/// {"function": {"name", "arguments"}}, or the inner object alone.
void check_call(const ConversationLine& line, JsonValue& call, const std::string& member) {
  if (call.object() == nullptr) line.fail_type(member, "an object", &call);
  JsonValue* function = member_of(call, "function");
  if (function != nullptr && function->object() == nullptr)
    line.fail_type(member + ".function", "an object", function);
  JsonValue& holder = function == nullptr ? call : *function;
  line.text(holder.find("name"), member + (function == nullptr ? ".name" : ".function.name"));
  if (JsonValue* arguments = member_of(holder, "arguments")) *arguments = arguments_of(*arguments, member);
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
    if ((*parts)[i].object() == nullptr && (*parts)[i].text() == nullptr)
      line.fail_type(member + "." + place("content", i), "an object", &(*parts)[i]);
}

JsonValue checked_message(const ConversationLine& line, JsonValue message, std::size_t i) {
  const std::string member = place("messages", i);
  if (message.object() == nullptr) line.fail_type(member, "an object", &message);
  const std::string& role = line.text(message.find("role"), member + ".role");
  if (std::ranges::find(kRoles, role) == std::end(kRoles))
    line.fail(member + ".role: expected system, developer, user, assistant or tool, found \"" + role + "\"");
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

JsonValue tools_of(const ConversationLine& line) {
  const JsonValue* tools = line.find("tools");
  if (tools == nullptr || (tools->text() != nullptr && tools->text()->empty())) return {};
  JsonValue list = line.array_or_json(*tools, "tools");
  return list.array()->empty() ? JsonValue() : list;
}

/// A system prompt that stands beside the turns.
void add_system(const ConversationLine& line, JsonValue::Array& messages) {
  const JsonValue* system = line.find("system");
  if (system == nullptr || line.text(system, "system").empty()) return;
  messages.push_back(message_of("system", *system));
}

}  // namespace

Conversation read_openai(const ConversationLine& line) {
  Conversation conversation;
  const JsonValue::Array& messages = line.array(line.find("messages"), "messages");
  for (std::size_t i = 0; i < messages.size(); ++i)
    conversation.messages.push_back(checked_message(line, messages[i], i));
  conversation.tools = tools_of(line);
  return conversation;
}

JsonValue tool_calls_of(const ConversationLine& line, const JsonValue& given, const std::string& member) {
  JsonValue calls = given;
  if (calls.array() == nullptr) calls.value = JsonValue::Array{given};
  auto& list = std::get<JsonValue::Array>(calls.value);
  for (std::size_t i = 0; i < list.size(); ++i) {
    check_call(line, list[i], member);
    if (list[i].find("function") != nullptr) continue;
    JsonValue call;
    call.value = JsonValue::Object{{"type", json_text_value("function")}, {"function", std::move(list[i])}};
    list[i] = std::move(call);
  }
  return calls;
}

Conversation read_sharegpt(const ConversationLine& line) {
  Conversation conversation;
  add_system(line, conversation.messages);
  const JsonValue::Array& turns = line.array(line.find("conversations"), "conversations");
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].object() == nullptr) line.fail_type(place("conversations", i), "an object", &turns[i]);
    const std::string& from = line.text(turns[i].find("from"), place("conversations", i, "from"));
    const std::string value_member = place("conversations", i, "value");
    const std::string& value = line.text(turns[i].find("value"), value_member);
    const auto* speaker = std::ranges::find(kSpeakers, std::string_view(from), &Speaker::from);
    if (speaker == std::end(kSpeakers))
      line.fail(place("conversations", i, "from") +
                ": expected human, gpt, system, function_call or observation, found \"" + from + "\"");
    JsonValue message = message_of(speaker->role, json_text_value(value));
    if (from == "function_call") {
      JsonValue calls = tool_calls_of(line, parse_json_value(value, value_member), value_member);
      message = message_of("assistant", {});
      std::get<JsonValue::Object>(message.value).push_back({"tool_calls", std::move(calls)});
    }
    conversation.messages.push_back(std::move(message));
  }
  conversation.tools = tools_of(line);
  return conversation;
}

Conversation read_alpaca(const ConversationLine& line) {
  Conversation conversation;
  add_system(line, conversation.messages);
  const auto add_turn = [&](const std::string& asked, const std::string& said) {
    conversation.messages.push_back(message_of("user", json_text_value(asked)));
    conversation.messages.push_back(message_of("assistant", json_text_value(said)));
  };
  if (const JsonValue* history = line.find("history")) {
    const JsonValue::Array& turns = line.array(history, "history");
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const JsonValue::Array& turn = line.array(&turns[i], place("history", i));
      if (turn.size() != 2)
        line.fail(place("history", i) + ": expected two texts, found " + described(turns[i]));
      add_turn(line.text(&turn[0], place("history", i)), line.text(&turn[1], place("history", i)));
    }
  }
  std::string asked = line.text(line.find("instruction"), "instruction");
  if (const JsonValue* input = line.find("input"); input != nullptr && !line.text(input, "input").empty())
    asked += "\n" + *input->text();
  add_turn(asked, line.text(line.find("output"), "output"));
  conversation.tools = tools_of(line);
  return conversation;
}

}  // namespace moeloom
