#include "conversation/answers.hpp"

#include <algorithm>
#include <optional>

#include "conversation/message.hpp"

namespace moeloom {
namespace {

/// The first form of an answer that stands at the text's begin: as it is, or without the blanks around it.
std::optional<std::size_t> length_at_begin(std::string_view text, std::string_view answer,
                                           std::string_view behind) {
  const std::string_view trimmed = trimmed_text(answer);
  const auto rest = static_cast<std::size_t>(trimmed.data() - answer.data());
  for (const std::string_view form :
       {answer, trimmed, answer.substr(rest), answer.substr(0, rest + trimmed.size())})
    if (text.starts_with(form) && text.substr(form.size()).starts_with(behind)) return form.size();
  return std::nullopt;
}

/// Of the first call.
JsonValue* name_of_call(JsonValue& message) {
  JsonValue* calls = member_of(message, "tool_calls");
  auto* list = calls == nullptr ? nullptr : std::get_if<JsonValue::Array>(&calls->value);
  if (list == nullptr || list->empty()) return nullptr;
  JsonValue* function = member_of(list->front(), "function");
  return member_of(function == nullptr ? list->front() : *function, "name");
}

}  // namespace

std::string_view trimmed_text(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

std::size_t thought_of(std::string_view said) {
  constexpr std::string_view kThought = "</think>";
  const std::size_t at = said.rfind(kThought);
  return at == std::string_view::npos ? 0 : at + kThought.size();
}

std::string called_alone(const JsonValue& message) {
  const JsonValue* content = message.find("content");
  const bool says =
      content != nullptr && content->text() != nullptr && !trimmed_text(*content->text()).empty();
  const JsonValue* name = says ? nullptr : name_of_call(const_cast<JsonValue&>(message));
  return name == nullptr || name->text() == nullptr ? "" : *name->text();
}

std::vector<Answer> replaced_answers(JsonValue::Array& messages) {
  std::vector<Answer> said;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (*messages[i].find("role")->text() != "assistant") continue;
    if (const std::string name = called_alone(messages[i]); !name.empty()) {
      said.push_back({i, name});
      name_of_call(messages[i])->value = said.back().stand_in();
      continue;
    }
    JsonValue* content = member_of(messages[i], "content");
    if (content == nullptr || content->text() == nullptr) continue;
    const std::string text = *content->text();
    const std::size_t thought = thought_of(text);
    if (trimmed_text(std::string_view(text).substr(thought)).empty()) continue;
    said.push_back({i, text.substr(thought)});
    content->value = text.substr(0, thought) + said.back().stand_in();
  }
  return said;
}

std::vector<std::pair<std::size_t, ByteRange>> places_of(std::vector<Answer> said, std::string_view text,
                                                         std::string_view whole) {
  std::erase_if(said, [&](const Answer& each) { return text.find(each.stand_in()) == text.npos; });
  std::vector<std::pair<std::size_t, ByteRange>> places;
  std::size_t begin = 0;
  for (std::size_t k = 0; k < said.size(); ++k) {
    const std::size_t place = text.find(said[k].stand_in());
    if (!whole.substr(begin).starts_with(text.substr(0, place))) break;
    begin += place;
    text.remove_prefix(place + said[k].stand_in().size());
    const std::string_view behind =
        k + 1 < said.size() ? text.substr(0, text.find(said[k + 1].stand_in())) : text;
    const auto length = length_at_begin(whole.substr(begin), said[k].text, behind);
    if (!length) break;
    places.push_back({said[k].message, {begin, begin + *length}});
    begin += *length;
  }
  return places;
}

}  // namespace moeloom
