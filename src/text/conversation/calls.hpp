// Tool calls as a template takes them.
#pragma once

#include "text/learned.hpp"

namespace moeloom {

/// Arguments of calls come as objects, or as texts that hold one, as OpenAI writes them; a template prints
/// texts, or walks through objects. They stay as they are where the template writes them so, byte for byte;
/// else they are objects, or else texts of JSON.
Conversation with_calls_as_taken(const Conversation& given, const ChatTemplate& chat_template,
                                 const LearnOptions& options);

}  // namespace moeloom
