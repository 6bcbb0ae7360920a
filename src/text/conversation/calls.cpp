#include "conversation/calls.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "conversation/message.hpp"
#include "conversation/turns.hpp"

namespace moeloom {
namespace {

/// use(arguments) for those of each call.
template <typename Use>
void each_arguments(JsonValue::Array& messages, const Use& use) {
  for (JsonValue& message : messages) {
    JsonValue* calls = member_of(message, "tool_calls");
    auto* list = calls == nullptr ? nullptr : std::get_if<JsonValue::Array>(&calls->value);
    if (list == nullptr) continue;
    for (JsonValue& call : *list) {
      JsonValue* function = member_of(call, "function");
      if (JsonValue* arguments = member_of(function == nullptr ? call : *function, "arguments"))
        use(*arguments);
    }
  }
}

/// The object that a text holds; none for a model's own words.
std::optional<JsonValue> object_in(const JsonValue& arguments) {
  if (arguments.text() == nullptr || !trimmed(*arguments.text()).starts_with('{')) return std::nullopt;
  try {
    return parse_json_value(*arguments.text(), "arguments");
  } catch (const IoError&) {
    return std::nullopt;
  }
}

/// As Python's json.dumps has it, by the one who knows: a template.
JsonValue json_text_of(const JsonValue& arguments) {
  static const ChatTemplate to_json = ChatTemplate::parse("{{ arguments | tojson }}", "arguments");
  ChatRequest request;
  request.messages.value = JsonValue::Array();
  request.variables.push_back({"arguments", arguments});
  JsonValue text;
  text.value = to_json.render(request).text;
  return text;
}

Conversation with_objects(Conversation conversation) {
  each_arguments(conversation.messages, [](JsonValue& arguments) {
    if (auto object = object_in(arguments)) arguments = std::move(*object);
  });
  return conversation;
}

Conversation with_json_texts(Conversation conversation) {
  each_arguments(conversation.messages, [](JsonValue& arguments) {
    if (arguments.object() != nullptr) arguments = json_text_of(arguments);
  });
  return conversation;
}

/// Whether the template takes it, and writes texts of arguments as they are: others in their places, which
/// stand nowhere else and have quotes that tojson would change, come out whole.
bool is_taken(Conversation conversation, const ChatTemplate& chat_template, const LearnOptions& options) {
  std::vector<std::string> in_place;
  each_arguments(conversation.messages, [&](JsonValue& arguments) {
    if (!object_in(arguments)) return;
    in_place.push_back("{\"StandsForArguments" + std::to_string(in_place.size()) + "\": 0}");
    arguments.value = in_place.back();
  });
  try {
    const std::string text = chat_template.render(request_of(conversation, options)).text;
    return std::ranges::all_of(in_place,
                               [&](const std::string& each) { return text.find(each) != text.npos; });
  } catch (const TemplateError&) {
    return false;
  }
}

}  // namespace

Conversation with_calls_as_taken(const Conversation& given, const ChatTemplate& chat_template,
                                 const LearnOptions& options) {
  Conversation conversation = given;
  bool has_arguments = false;
  each_arguments(conversation.messages, [&](const JsonValue& arguments) {
    has_arguments |= arguments.object() != nullptr || object_in(arguments).has_value();
  });
  if (!has_arguments || is_taken(given, chat_template, options)) return given;
  for (Conversation other : {with_objects(given), with_json_texts(given)})
    if (is_taken(other, chat_template, options)) return other;
  return given;
}

}  // namespace moeloom
