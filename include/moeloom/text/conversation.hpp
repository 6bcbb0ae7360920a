// Conversations as people keep them: a line of .jsonl in one of four shapes, told by their keys.
//
//   OpenAI    {"messages": [{"role", "content", ...}], "tools": [...]}
//   ShareGPT  {"conversations": [{"from", "value"}], "system", "tools"}
//   Alpaca    {"instruction", "input", "output", "system", "history"}
//   plain     {"text": "..."}
//
// The first of "messages", "conversations", "instruction" and "text" that a line has decides; other keys are
// left alone.
#pragma once

#include "moeloom/io/json_value.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace moeloom {

struct Conversation {
  JsonValue::Array messages;        // objects with "role" and "content" first, as templates expect them
  JsonValue tools;                  // null or an array
  std::optional<std::string> text;  // of a plain line, which has no messages
};

/// Messages are kept with every member that they have; a tool call whose arguments are JSON in a text, as
/// OpenAI writes them, has them as an object, as templates read them.
///
/// Roles: system or developer may come first; then user and assistant take turns, where an assistant may
/// follow what a tool answered, and a tool answers an assistant's calls. A conversation may end with any of
/// them. Throws IoError "<origin>: <reason>" for no JSON, none of the shapes, an empty conversation, wrong
/// types and roles out of order; `origin` names file and line: "chats.jsonl:12".
Conversation parse_conversation(std::string_view line, const std::string& origin);

}  // namespace moeloom
