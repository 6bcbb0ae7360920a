#include "text/learned.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <ranges>

#include "conversation/calls.hpp"
#include "conversation/members.hpp"
#include "conversation/turns.hpp"

namespace moeloom {
namespace {

bool is_assistant(const JsonValue& message) {
  return *message.find("role")->text() == "assistant";
}

/// What a turn says of itself.
std::optional<bool> weight_of(const Conversation& conversation, std::size_t i) {
  return i < conversation.learned.size() ? conversation.learned[i] : std::nullopt;
}
bool weighs_turns(const Conversation& conversation) {
  return std::ranges::any_of(conversation.learned, [](const auto& weight) { return weight.has_value(); });
}

/// The texts of a content's parts, one behind the other.
std::string text_of_parts(const JsonValue::Array& parts) {
  std::string text;
  for (const JsonValue& part : parts)
    text += part.text() != nullptr ? *part.text() : *part.find("text")->text();
  return text;
}

bool has_parts(const Conversation& conversation) {
  return std::ranges::any_of(conversation.messages, [](const JsonValue& message) {
    const JsonValue* content = message.find("content");
    return content != nullptr && content->array() != nullptr;
  });
}

Conversation with_texts(Conversation conversation) {
  for (JsonValue& message : conversation.messages)
    for (auto& [name, value] : std::get<JsonValue::Object>(message.value))
      if (name == "content" && value.array() != nullptr) value.value = text_of_parts(*value.array());
  return conversation;
}

/// The assistant turns that are learned by the rule or by what they say.
std::vector<std::size_t> learned_turns(const Conversation& conversation, LearnRule rule) {
  std::vector<std::size_t> turns;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i)
    if (is_assistant(conversation.messages[i])) turns.push_back(i);
  const std::size_t last = turns.empty() ? 0 : turns.back();
  std::erase_if(turns, [&](std::size_t i) {
    return !weight_of(conversation, i).value_or(rule != LearnRule::kLast || i == last);
  });
  return turns;
}

/// Of what a template marks: how many of the whole text's ranges lie before message i. None: of these
/// messages alone it marks something else, so a count of them says nothing of the whole.
std::optional<std::size_t> ranges_before(std::size_t i, const std::string& text,
                                         const std::vector<ByteRange>& all, const Conversation& conversation,
                                         const ChatTemplate& chat_template, const LearnOptions& options) {
  ChatRequest request = request_of(conversation, options);
  request.messages.value = JsonValue::Array(conversation.messages.begin(),
                                            conversation.messages.begin() + static_cast<std::ptrdiff_t>(i));
  const RenderedChat before = chat_template.render(request);
  const auto marked = [](const std::string& in, const ByteRange& range) {
    return std::string_view(in).substr(range.begin, range.end - range.begin);
  };
  const std::size_t count = before.assistant.size();
  if (count > all.size()) return std::nullopt;
  for (std::size_t k = 0; k < count; ++k)
    if (marked(before.text, before.assistant[k]) != marked(text, all[k])) return std::nullopt;
  return count;
}

/// Of what a template marks: the ranges of these turns. A turn ends where the next assistant turn begins:
/// behind its own end alone it would be the last turn, which templates may mark in another way.
void place_marked(const std::vector<std::size_t>& turns, const std::vector<ByteRange>& all,
                  const Conversation& conversation, const ChatTemplate& chat_template,
                  const LearnOptions& options, AssistantText& result) {
  for (const std::size_t i : turns) {
    const auto next = std::find_if(conversation.messages.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                   conversation.messages.end(), is_assistant);
    const auto before = [&](std::size_t message) {
      return ranges_before(message, result.text, all, conversation, chat_template, options);
    };
    const std::optional<std::size_t> begin = before(i);
    const std::optional<std::size_t> end =
        next == conversation.messages.end()
            ? all.size()
            : before(static_cast<std::size_t>(next - conversation.messages.begin()));
    if (!begin || !end || *end < *begin) {
      ++result.unplaced_turns;
      continue;
    }
    for (std::size_t k = *begin; k < *end; ++k) result.ranges.push_back(all[k]);
  }
}

}  // namespace

AssistantText assistant_text(const Conversation& given, const ChatTemplate& chat_template,
                             const LearnOptions& options) {
  if (has_parts(given) && !chat_template.takes_parts())
    return assistant_text(with_texts(given), chat_template, options);
  const Conversation& conversation = given;
  RenderedChat whole = chat_template.render(request_of(conversation, options));
  AssistantText result{std::move(whole.text), {}};
  const bool weighed = weighs_turns(conversation);
  if (options.rule == LearnRule::kAll) {
    if (weighed) throw ConfigError({"a turn says whether it is learned, and all tokens are to be"});
    result.ranges = {{0, result.text.size()}};
    return result;
  }
  std::vector<std::size_t> turns = learned_turns(conversation, options.rule);
  result.turns = turns.size();
  if (conversation.prompt && !weighed) {
    TurnFinder finder(conversation, chat_template, options, result.text);
    const std::optional<std::size_t> begin = finder.end_of_prompt(*conversation.prompt);
    if (begin) result.ranges = {{*begin, result.text.size()}};
    result.unplaced_turns = begin ? 0 : turns.size();
    return result;
  }
  if (chat_template.marks_assistant()) {
    if (options.rule == LearnRule::kAssistant && !weighed)
      result.ranges = std::move(whole.assistant);
    else
      place_marked(turns, whole.assistant, conversation, chat_template, options, result);
    return result;
  }
  require_little_work(turns.size(), conversation.messages.size(), result.text.size(), chat_template.name());
  TurnFinder finder(conversation, chat_template, options, result.text);
  for (const std::size_t i : turns) {
    const std::optional<ByteRange> range = finder.turn(i);
    if (range && (result.ranges.empty() || result.ranges.back().end <= range->begin))
      result.ranges.push_back(*range);
    else
      ++result.unplaced_turns;
  }
  return result;
}

std::vector<std::uint8_t> mask_of(const std::vector<ByteRange>& ranges,
                                  const std::vector<ByteRange>& offsets) {
  std::vector<std::uint8_t> mask(offsets.size(), 0);
  std::size_t token = 0;
  for (const ByteRange& range : ranges) {
    while (token < offsets.size() && offsets[token].end <= range.begin) ++token;
    // From the first to the last that holds a byte of it; between them are also tokens whose offsets were
    // trimmed away.
    std::size_t first = offsets.size(), last = 0;
    for (std::size_t i = token; i < offsets.size() && offsets[i].begin < range.end; ++i)
      if (offsets[i].begin < offsets[i].end) first = std::min(first, i), last = i;
    if (range.begin < range.end && first < offsets.size())
      std::fill(mask.begin() + static_cast<std::ptrdiff_t>(first),
                mask.begin() + static_cast<std::ptrdiff_t>(last) + 1, std::uint8_t{1});
  }
  return mask;
}

namespace {

/// A plain text is learned whole; of a prompt and its completion, what begins behind the prompt.
LearnedIds learned_text(const Conversation& conversation, const Tokenizer& tokenizer,
                        const LearnOptions& options) {
  LearnedIds result;
  const bool whole = !conversation.prompt || options.rule == LearnRule::kAll;
  Encoding encoding;
  if (whole)
    encoding.ids = tokenizer.encode(*conversation.text, true);
  else
    encoding = tokenizer.encode_with_offsets(*conversation.text, true);
  result.ids = std::move(encoding.ids);
  result.learned.assign(result.ids.size(), 1);
  if (!whole) {
    // What the tokenizer puts behind the text has no bytes of it, and belongs to the completion.
    const auto is_text = [](const ByteRange& range) { return range.begin < range.end; };
    const auto end = std::ranges::find_if(encoding.offsets | std::views::reverse, is_text).base();
    for (std::size_t i = 0; i < static_cast<std::size_t>(end - encoding.offsets.begin()); ++i)
      result.learned[i] = encoding.offsets[i].begin >= *conversation.prompt ? 1 : 0;
  }
  if (options.end_of_text && (result.ids.empty() || result.ids.back() != *options.end_of_text)) {
    result.ids.push_back(*options.end_of_text);
    result.learned.push_back(1);
  }
  return result;
}

}  // namespace

LearnedIds learned_ids(const Conversation& conversation, const ChatModel& model, const Tokenizer& tokenizer,
                       const LearnOptions& options) {
  LearnedIds result;
  if (conversation.text) return learned_text(conversation, tokenizer, options);
  const ChatTemplate& chat_template = model.chat_template(!conversation.tools.is_null());
  result.unread_keys = unread_keys(conversation, chat_template, options);
  LearnOptions all = options;
  all.variables = model.variables(tokenizer);
  all.variables.insert(all.variables.end(), options.variables.begin(), options.variables.end());
  const Conversation joined =
      has_parts(conversation) && !chat_template.takes_parts() ? with_texts(conversation) : conversation;
  const AssistantText said =
      assistant_text(with_calls_as_taken(joined, chat_template, all), chat_template, all);
  Encoding encoding = tokenizer.encode_with_offsets(said.text, false);
  result.learned = options.rule == LearnRule::kAll ? std::vector<std::uint8_t>(encoding.ids.size(), 1)
                                                   : mask_of(said.ranges, encoding.offsets);
  result.ids = std::move(encoding.ids);
  result.assistant_turns = said.turns;
  result.unplaced_turns = said.unplaced_turns;
  return result;
}

}  // namespace moeloom
