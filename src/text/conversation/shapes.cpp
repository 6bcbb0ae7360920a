// The shapes of a conversation, each as messages of OpenAI's.
#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "message.hpp"

namespace moeloom {
namespace {

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

bool says_system(const JsonValue& turn) {
  const JsonValue* role = turn.find("role") == nullptr ? turn.find("from") : turn.find("role");
  return role != nullptr && role->text() != nullptr &&
         (*role->text() == "system" || *role->text() == "developer");
}

/// A system prompt that stands beside the turns `list`, unless their first is that prompt.
void add_system(const ConversationLine& line, Conversation& conversation, const char* list = nullptr) {
  const JsonValue* system = line.find("system");
  if (system == nullptr || says_nothing(*system)) return;
  line.text(system, "system");
  const JsonValue* turns = list == nullptr ? nullptr : line.find(list);
  const bool has_turns = turns != nullptr && turns->array() != nullptr && !turns->array()->empty();
  if (has_turns && says_system(turns->array()->front())) {
    const JsonValue& first = turns->array()->front();
    const JsonValue* said = first.find("content") == nullptr ? first.find("value") : first.find("content");
    if (said != nullptr && said->text() != nullptr && *said->text() == *system->text()) return;
    line.fail(std::string("system and the first of ") + list + " are two system prompts; give one");
  }
  add_message(line, message_of("system", *system), "system", conversation);
}

void add_messages(const ConversationLine& line, const char* key, Conversation& conversation) {
  const JsonValue::Array& messages = line.array(line.find(key), key);
  for (std::size_t i = 0; i < messages.size(); ++i)
    add_message(line, checked_message(line, messages[i], place(key, i)), place(key, i), conversation);
}

/// [["question", "answer"], ...], which came before.
void add_history(const ConversationLine& line, Conversation& conversation) {
  const JsonValue* history = line.find("history");
  if (history == nullptr || says_nothing(*history)) return;
  const JsonValue::Array& turns = line.array(history, "history");
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const JsonValue::Array& turn = line.array(&turns[i], place("history", i));
    if (turn.size() != 2)
      line.fail(place("history", i) + ": expected two texts, found " + described(turns[i]));
    for (const auto& [role, text] : {std::pair("user", &turn[0]), std::pair("assistant", &turn[1])})
      add_message(line, message_of(role, json_text_value(line.text(text, place("history", i)))),
                  place("history", i), conversation);
  }
}

void add_turn(const ConversationLine& line, const std::string& asked, const std::string& said,
              Conversation& conversation) {
  add_message(line, message_of("user", json_text_value(asked)), "user", conversation);
  add_message(line, message_of("assistant", json_text_value(said)), "assistant", conversation);
}

/// The members of a turn of ShareGPT's that are not read here go along with its message. Those that it has by
/// the turn's words already must say the same.
void take_the_rest(const ConversationLine& line, const JsonValue& turn, const std::string& member,
                   JsonValue& message) {
  for (const auto& [name, value] : *turn.object()) {
    if (name == "from" || name == "value" || value.is_null()) continue;
    const JsonValue* present = message.find(name);
    if (present == nullptr) {
      std::get<JsonValue::Object>(message.value).push_back({name, value});
      continue;
    }
    const bool is_same =
        present->text() != nullptr && value.text() != nullptr && *present->text() == *value.text();
    if (!is_same) line.fail(member + "." + name + ": it says otherwise than from and value do");
  }
}

}  // namespace

Conversation read_openai(const ConversationLine& line, const char* key) {
  Conversation conversation;
  add_system(line, conversation, key);
  add_messages(line, key, conversation);
  return conversation;
}

Conversation read_completion(const ConversationLine& line) {
  Conversation conversation;
  const JsonValue* completion = line.find("completion");
  if (completion->array() == nullptr) {
    const std::string& prompt = line.text(line.find("prompt"), "prompt");
    conversation.text = prompt + line.text(completion, "completion");
    conversation.prompt = prompt.size();
    if (conversation.text->size() == prompt.size()) line.fail("completion: expected at least one character");
    return conversation;
  }
  add_messages(line, "prompt", conversation);
  conversation.prompt = conversation.messages.size();
  if (completion->array()->empty()) line.fail("completion: expected at least one message");
  add_messages(line, "completion", conversation);
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
  const JsonValue::Array& turns = line.array(line.find("conversations"), "conversations");
  if (!turns.empty() && turns.front().find("role") != nullptr) return read_openai(line, "conversations");
  Conversation conversation;
  add_system(line, conversation, "conversations");
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
      JsonValue calls =
          tool_calls_of(line, parse_json_value(value, line.origin() + ": " + value_member), value_member);
      message = message_of("assistant", {});
      std::get<JsonValue::Object>(message.value).push_back({"tool_calls", std::move(calls)});
    }
    const std::string member = place("conversations", i);
    take_the_rest(line, turns[i], member, message);
    add_message(line, checked_message(line, std::move(message), member), member, conversation);
  }
  return conversation;
}

Conversation read_query(const ConversationLine& line) {
  Conversation conversation;
  add_system(line, conversation);
  add_history(line, conversation);
  add_turn(line, line.text(line.find("query"), "query"), line.text(line.find("response"), "response"),
           conversation);
  return conversation;
}

Conversation read_alpaca(const ConversationLine& line) {
  Conversation conversation;
  add_system(line, conversation);
  add_history(line, conversation);
  std::string asked = line.text(line.find("instruction"), "instruction");
  if (const JsonValue* input = line.find("input"); input != nullptr && !line.text(input, "input").empty())
    asked += "\n" + *input->text();
  add_turn(line, asked, line.text(line.find("output"), "output"), conversation);
  return conversation;
}

}  // namespace moeloom
