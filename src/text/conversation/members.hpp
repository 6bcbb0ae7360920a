// What of a conversation its template does not read.
#pragma once

#include "text/learned.hpp"

#include <set>
#include <string>

namespace moeloom {

/// What the template does not read and what changes nothing else: "tools", "messages[].thinking", "template
/// variable enable_thinking". Throws ConfigError for roles that it does not write, and for members that may
/// mean something, unless options.ignored_keys has them.
std::set<std::string> unread_keys(const Conversation& conversation, const ChatTemplate& chat_template,
                                  const LearnOptions& options);

}  // namespace moeloom
