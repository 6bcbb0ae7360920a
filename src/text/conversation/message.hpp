// A line's members, and the messages made of them.
#pragma once

#include "text/conversation.hpp"

#include <initializer_list>

namespace moeloom {

/// A line that is being read; its complaints name where it stands.
class ConversationLine {
 public:
  /// ignored: unknown members that may stand there.
  ConversationLine(const JsonValue& line, const std::string& origin, const std::set<std::string>& ignored)
      : line_(line), origin_(origin), ignored_(ignored) {}

  /// The member if it is there and not null.
  const JsonValue* find(std::string_view key) const;
  const JsonValue::Object& members() const { return *line_.object(); }
  const std::string& origin() const { return origin_; }
  bool ignores(const std::string& key) const { return ignored_.contains(key); }
  [[noreturn]] void fail(const std::string& reason) const;
  /// What a member is to be: "messages[2].role: expected a text, found 7".
  [[noreturn]] void fail_type(const std::string& member, const char* expected, const JsonValue* found) const;

  const std::string& text(const JsonValue* value, const std::string& member) const;
  const JsonValue::Array& array(const JsonValue* value, const std::string& member) const;
  /// An array, or a text that holds one as JSON.
  JsonValue array_or_json(const JsonValue& value, const std::string& member) const;

 private:
  const JsonValue& line_;
  const std::string& origin_;
  const std::set<std::string>& ignored_;
};

/// Throws IoError for columns of pairs of answers, as chosen and rejected.
void require_no_preference(const ConversationLine& line);
/// Names of the columns beside `read` that are neither silent nor refused; throws IoError for those that may
/// change what is learned.
std::vector<std::string> other_columns(const ConversationLine& line,
                                       const std::vector<std::string_view>& read);
inline JsonValue* member_of(JsonValue& value, std::string_view key) {
  return const_cast<JsonValue*>(value.find(key));
}
JsonValue json_text_value(std::string text);
JsonValue message_of(const std::string& role, JsonValue content);

/// "messages[2].role".
std::string place(const char* list, std::size_t i, const char* member = nullptr);
/// {"function": {"name", "arguments"}}, or the inner object alone.
void check_call(const ConversationLine& line, JsonValue& call, const std::string& member);
/// A message of role and content. Throws IoError.
JsonValue checked_message(const ConversationLine& line, JsonValue message, const std::string& member);
/// With what its turn says of being learned, which does not stay in it.
void add_message(const ConversationLine& line, JsonValue message, const std::string& member,
                 Conversation& conversation);

/// A conversation's messages, out of each shape.
Conversation read_openai(const ConversationLine& line, const char* key);
Conversation read_sharegpt(const ConversationLine& line);
Conversation read_alpaca(const ConversationLine& line);
Conversation read_query(const ConversationLine& line);
Conversation read_completion(const ConversationLine& line);

/// [{"name", "arguments"}] or one of them, as tool calls of OpenAI's shape.
JsonValue tool_calls_of(const ConversationLine& line, const JsonValue& calls, const std::string& member);

}  // namespace moeloom
