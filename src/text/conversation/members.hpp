// What of a conversation its template does not read.
#pragma once

#include "moeloom/text/chat_template.hpp"
#include "moeloom/text/conversation.hpp"

#include <set>
#include <string>

namespace moeloom {

/// Names of members of messages, and of variables that the template was to be told, which it does not read
/// and which change nothing else. Throws ConfigError for members, tools and roles that it does not read and
/// that may mean something.
std::set<std::string> unread_keys(const Conversation& conversation, const ChatTemplate& chat_template,
                                  const JsonValue::Object& variables);

}  // namespace moeloom
