// Which tokens of a conversation are learned.
#pragma once

#include "moeloom/text/learn_rule.hpp"
#include "moeloom/text/tokenizer.hpp"
#include "text/chat_model.hpp"
#include "text/conversation.hpp"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace moeloom {

struct LearnedIds {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> learned;  // of each id: 1, if it is learned as a target
  std::size_t assistant_turns = 0;
  std::size_t unplaced_turns = 0;  // of those, how many could not be found in the text and are not learned
  std::set<std::string> unread_keys = {};  // what this template does not read: "messages[].thinking", "tools"
};

struct LearnOptions {
  LearnRule rule = LearnRule::kAssistant;
  JsonValue::Object variables = {};  // of the template, beside the special tokens
  std::tm now = {};
  std::optional<std::uint32_t> end_of_text = {};  // follows a plain text, and is learned
  std::set<std::string> ignored_keys = {};        // unknown members of messages that may stand there
};

/// Where the assistant speaks in a conversation's text, as LearnRule says.
///
/// A template with {% generation %} says so itself. Any other is rendered for each turn: up to the turn with
/// a generation prompt (where it begins), and with it (where it ends). Both are compared with the whole text:
/// - a generation prompt that goes on otherwise than the whole text ("<think>" where the turn has none)
/// counts as far as
///   both agree, if the messages before the turn are there as they were;
/// - a turn that the whole text does not repeat word for word (reasoning that is dropped from earlier turns)
/// counts from
///   the longest end of it that stands there, if that holds what the turn says or calls; else as far as both
///   agree (a mark behind the last turn alone), if that does;
/// - otherwise (a system message that moves to the last user's) and where the template refuses a part of the
///   conversation: what the turn says, without reasoning and calls, found by rendering the conversation with
///   other words in its place, and the marks that end it;
/// - a turn that is not found either is not learned: `unplaced_turns`.
struct AssistantText {
  std::string text;
  std::vector<ByteRange> ranges;
  std::size_t turns = 0;
  std::size_t unplaced_turns = 0;
};
AssistantText assistant_text(const Conversation& conversation, const ChatTemplate& chat_template,
                             const LearnOptions& options);

/// A token is of a range if it holds a byte of it, or stands between two that do; ranges and offsets are in
/// order.
std::vector<std::uint8_t> mask_of(const std::vector<ByteRange>& ranges,
                                  const std::vector<ByteRange>& offsets);

/// Ids are made without special tokens, which the template has written; those of a plain text with them.
/// Thread safe. Throws TemplateError where the template refuses the conversation, ConfigError as the
/// tokenizer does and for members of messages that neither the template nor anybody is known to read.
LearnedIds learned_ids(const Conversation& conversation, const ChatModel& model, const Tokenizer& tokenizer,
                       const LearnOptions& options);

}  // namespace moeloom
