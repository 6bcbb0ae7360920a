#include "conversation/members.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "conversation/message.hpp"
#include "conversation/turns.hpp"

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
      if (std::ranges::count(kKnownMembers, name) > 0 || name == "tool_calls")
        unread.insert("messages[]." + name);
      else
        refused.insert(name);
    }
  }
}

/// Whether the template writes what a message of such a role says: under any name, or because it knows this
/// one.
bool writes_role(const Conversation& conversation, std::size_t message, const ChatTemplate& chat_template,
                 const LearnOptions& options) {
  const std::string& role = *conversation.messages[message].find("role")->text();
  const JsonValue* content = conversation.messages[message].find("content");
  ChatRequest request = request_of(conversation, options);
  try {
    if (has_word(chat_template.source(), role)) {
      const std::string text = chat_template.render(request).text;
      if (content == nullptr || content->text() == nullptr ||
          text.find(trimmed(*content->text())) != text.npos)
        return true;
    }
    constexpr const char* kStandIn = "StandsForRole";
    auto& messages = std::get<JsonValue::Array>(request.messages.value);
    member_of(messages[message], "role")->value = std::string(kStandIn);
    return chat_template.render(request).text.find(kStandIn) != std::string::npos;
  } catch (const TemplateError&) {
    return false;
  }
}

void require_known_roles(const Conversation& conversation, const ChatTemplate& chat_template,
                         const LearnOptions& options) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  std::set<std::string> known(std::begin(kRoles), std::end(kRoles));
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const std::string& role = *conversation.messages[i].find("role")->text();
    if (!known.insert(role).second) continue;
    if (!writes_role(conversation, i, chat_template, options))
      throw ConfigError({"messages[" + std::to_string(i) +
                         "].role: expected system, developer, user, assistant, "
                         "tool or another that the template writes, found \"" +
                         role + "\""});
  }
}

}  // namespace

std::set<std::string> unread_keys(const Conversation& conversation, const ChatTemplate& chat_template,
                                  const LearnOptions& options) {
  const std::string& source = chat_template.source();
  require_known_roles(conversation, chat_template, options);
  std::set<std::string> unread, refused;
  judge_members(conversation, source, unread, refused);
  std::erase_if(refused, [&](const std::string& name) { return options.ignored_keys.contains(name); });
  if (!refused.empty()) {
    const std::vector<std::string> names(refused.begin(), refused.end());
    throw ConfigError(
        {"unknown keys of messages, which the template does not read: " + joined(names) + way_around(names)});
  }
  if (!conversation.tools.is_null() && !has_word(source, "tools")) unread.insert("tools");
  for (const JsonValue::Object* told : {&options.variables, &conversation.template_variables})
    for (const auto& [name, value] : *told)
      if (!has_word(source, name)) unread.insert("template variable " + name);
  return unread;
}

}  // namespace moeloom
