// Conversations as people keep them: a line of .jsonl in one of these shapes, told by their keys.
//
//   OpenAI      {"messages": [{"role", "content", ...}], "system", "tools": [...]}
//   ShareGPT    {"conversations": [{"from", "value"}], "system", "tools"}, or turns of role and content
//   Alpaca      {"instruction", "input", "output", "system", "history"}
//   ms-swift    {"query", "response", "system", "history"}
//   completion  {"prompt", "completion"}: two texts, or two lists of messages
//   plain       {"text": "..."}
//
// The first of "messages", "conversations", "instruction", "query", "completion" and "text" that a line has
// decides. Beside any of them stands "chat_template_kwargs", an object. A line's other columns (an id, a url,
// a date) are left alone and named, unless they could mean something for what is learned: those are refused.
#pragma once

#include "moeloom/io/json_value.hpp"

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

struct Conversation {
  JsonValue::Array messages;        // objects with "role" and "content" first, as templates expect them
  JsonValue tools;                  // null or an array
  std::optional<std::string> text;  // of a plain line, which has no messages
  /// Of each message whether it is learned, where its turn says so by one of kTurnWeights.
  std::vector<std::optional<bool>> learned = {};
  /// Of a completion: so many messages, or bytes of the text, come before what is learned.
  std::optional<std::size_t> prompt = {};
  JsonValue::Object template_variables = {};  // "chat_template_kwargs"
  std::vector<std::string> other_columns = {};
};

/// By these a turn says whether it is learned: true or false, 1 or 0.
inline constexpr std::string_view kTurnWeights[] = {"weight", "train", "loss_mask", "trainable"};

/// Messages are kept with every member that they have.
///
/// Roles stand in any order: what a template does not take, it refuses. Throws IoError "<origin>: <reason>"
/// for no JSON, none of the shapes, an empty conversation, wrong types, columns of preferences (chosen,
/// rejected) and columns that could mean something; `origin` names file and line: "chats.jsonl:12". Columns
/// that `ignored` names are as if they were not there, and parts of a content may say what it names. A plain
/// text may be empty.
Conversation parse_conversation(std::string_view line, const std::string& origin,
                                const std::set<std::string>& ignored = {});

/// Null, false, an empty text, list or object.
bool says_nothing(const JsonValue& value);
/// Whether a name nobody reads could say what is learned: weight, mask, label, loss, train or learn is a word
/// of it.
bool could_say_what_is_learned(std::string_view name);
/// What lets such members pass: "...; ignored keys = a,b reads on without them".
std::string way_around(const std::vector<std::string>& keys);

}  // namespace moeloom
