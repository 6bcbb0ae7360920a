#include "conversation/members.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cctype>

namespace moeloom {
namespace {

/// Members of messages that templates are known to read, or that are known to say nothing of a text: where
/// this template does not read one, it is named.
constexpr std::string_view kKnownMembers[] = {"reasoning_content",
                                              "reasoning",
                                              "thinking",  // left out by such a template, by design
                                              "functions",
                                              "function_calls",
                                              "prefix",
                                              "current_date",
                                              "current_location",  // read by templates of one family
                                              "id",
                                              "timestamp",
                                              "created",
                                              "created_at",
                                              "date",
                                              "model",
                                              "lang",
                                              "language",
                                              "source",
                                              "url",
                                              "uuid",
                                              "finish_reason",
                                              "index",
                                              "score",
                                              "rank",
                                              "emoji",
                                              "avatar"};

/// Not within a longer name.
bool has_word(std::string_view text, std::string_view word) {
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_letter(text[at - 1])) && (end == text.size() || !is_letter(text[end]))) return true;
  }
  return false;
}

/// Members of messages that are neither read nor silent. Tools and calls that a template leaves out are
/// named: what is learned is what transformers renders.
void judge_members(const Conversation& conversation, const std::string& source, std::set<std::string>& unread,
                   std::set<std::string>& refused) {
  constexpr std::string_view kRead[] = {"role", "content", "tool_call_id", "name"};
  for (const JsonValue& message : conversation.messages) {
    for (const auto& [name, value] : *message.object()) {
      if (std::ranges::count(kRead, name) > 0 || value.is_null()) continue;
      if (says_nothing(value) && !could_say_what_is_learned(name)) continue;
      if (has_word(source, name)) continue;
      (std::ranges::count(kKnownMembers, name) > 0 || name == "tool_calls" ? unread : refused).insert(name);
    }
  }
  if (!conversation.tools.is_null() && !has_word(source, "tools")) unread.insert("tools");
}

/// Templates write the name of any role, or ask for those that they know.
void require_known_roles(const Conversation& conversation, const std::string& source) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  for (const JsonValue& message : conversation.messages) {
    const std::string& role = *message.find("role")->text();
    if (std::ranges::count(kRoles, role) == 0 && !has_word(source, role))
      throw ConfigError(
          {"role: expected system, developer, user, assistant, tool or another that the template "
           "names, found \"" +
           role + "\""});
  }
}

}  // namespace

std::set<std::string> unread_keys(const Conversation& conversation, const ChatTemplate& chat_template,
                                  const JsonValue::Object& variables) {
  const std::string& source = chat_template.source();
  require_known_roles(conversation, source);
  std::set<std::string> unread, refused;
  judge_members(conversation, source, unread, refused);
  if (!refused.empty()) {
    const std::vector<std::string> names(refused.begin(), refused.end());
    std::string text = "unknown keys of messages, which the template does not read:";
    for (const std::string& name : names) text += " " + name;
    throw ConfigError({text + way_around(names)});
  }
  for (const JsonValue::Object* told : {&variables, &conversation.template_variables})
    for (const auto& [name, value] : *told)
      if (!has_word(source, name)) unread.insert("template variable " + name);
  return unread;
}

}  // namespace moeloom
