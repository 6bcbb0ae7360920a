#include "moeloom/text/learned.hpp"

#include <algorithm>

namespace moeloom {
namespace {

// To find a turn, what lies before it is rendered twice: work that grows with the square of a conversation. A
// message costs about as much as so many bytes of text, in a template's loop.
constexpr double kMostWork = 2.0 * (1 << 30);  // bytes: some seconds
constexpr double kMessageBytes = 256;

ChatRequest request_of(const Conversation& conversation, const LearnOptions& options) {
  ChatRequest request;
  request.messages.value = conversation.messages;
  request.tools = conversation.tools;
  request.variables = options.variables;
  request.now = options.now;
  return request;
}

bool is_assistant(const JsonValue& message) {
  return *message.find("role")->text() == "assistant";
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const std::size_t shorter = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shorter), b.begin()).first -
      a.begin());
}

/// The length of the longest end of `turn` that `text` begins with, by Knuth, Morris and Pratt's failure
/// function.
std::size_t longest_end(std::string_view turn, std::string_view text) {
  text = text.substr(0, turn.size());
  std::vector<std::size_t> borders(text.size() + 1, 0);
  std::size_t matched = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (matched > 0 && text[i] != text[matched]) matched = borders[matched];
    if (text[i] == text[matched]) ++matched;
    borders[i + 1] = matched;
  }
  matched = 0;
  for (const char c : turn) {
    while (matched > 0 && (matched == text.size() || text[matched] != c)) matched = borders[matched];
    if (!text.empty() && text[matched] == c) ++matched;
  }
  return matched;
}

std::string_view trimmed_text(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

/// Whether the part holds the answer of a message, without reasoning before it, and the names of what it
/// calls.
bool holds_message(std::string_view part, const JsonValue& message) {
  std::size_t wanted = 0;
  if (const JsonValue* content = message.find("content"); content != nullptr && content->text() != nullptr) {
    std::string_view answer = *content->text();
    constexpr std::string_view kThought = "</think>";
    if (const std::size_t at = answer.rfind(kThought); at != std::string_view::npos)
      answer.remove_prefix(at + kThought.size());
    answer = trimmed_text(answer);
    if (part.find(answer) == std::string_view::npos) return false;
    wanted += answer.size();
  }
  const JsonValue* calls = message.find("tool_calls");
  if (calls == nullptr || calls->array() == nullptr) return wanted > 0;
  for (const JsonValue& call : *calls->array()) {
    const JsonValue* function = call.find("function") == nullptr ? &call : call.find("function");
    const std::string& name = *function->find("name")->text();
    if (part.find(name) == std::string_view::npos) return false;
    wanted += name.size();
  }
  return wanted > 0;
}

/// Finds a conversation's turns in its whole text.
class TurnFinder {
 public:
  TurnFinder(const Conversation& conversation, const ChatTemplate& chat_template, const LearnOptions& options,
             const std::string& whole)
      : conversation_(conversation),
        chat_template_(chat_template),
        request_(request_of(conversation, options)),
        whole_(whole) {}

  std::optional<ByteRange> turn(std::size_t i) {
    const std::optional<std::string> with_turn = rendered(i + 1, false);
    const std::optional<std::size_t> begin = begin_of(i);
    if (!with_turn || !begin) return std::nullopt;
    if (whole_.starts_with(*with_turn) && with_turn->size() > *begin)
      return ByteRange{*begin, with_turn->size()};
    if (common_prefix(*with_turn, whole_) < *begin) return std::nullopt;
    const std::string_view rest = std::string_view(whole_).substr(*begin);
    const std::size_t length = longest_end(std::string_view(*with_turn).substr(*begin), rest);
    if (!holds_message(rest.substr(0, length), conversation_.messages[i])) return std::nullopt;
    return ByteRange{*begin, *begin + length};
  }

 private:
  /// The first messages' text; none where the template refuses them.
  std::optional<std::string> rendered(std::size_t messages, bool add_generation_prompt) {
    request_.messages.value =
        JsonValue::Array(conversation_.messages.begin(),
                         conversation_.messages.begin() + static_cast<std::ptrdiff_t>(messages));
    request_.add_generation_prompt = add_generation_prompt;
    try {
      return chat_template_.render(request_).text;
    } catch (const TemplateError&) {
      return std::nullopt;
    }
  }

  std::optional<std::size_t> begin_of(std::size_t i) {
    const std::optional<std::string> prompt = rendered(i, true);
    if (!prompt) return std::nullopt;
    std::size_t begin = common_prefix(*prompt, whole_);
    if (begin == prompt->size()) return begin;
    const std::optional<std::string> before = rendered(i, false);
    if (!before || !whole_.starts_with(*before) || begin < before->size()) return std::nullopt;
    while (begin > 0 && begin < whole_.size() && (static_cast<std::uint8_t>(whole_[begin]) & 0xC0) == 0x80)
      --begin;
    return begin;
  }

  const Conversation& conversation_;
  const ChatTemplate& chat_template_;
  ChatRequest request_;
  const std::string& whole_;
};

/// Of what a template marks: how many ranges lie before the last assistant turn.
std::size_t ranges_before_last(const Conversation& conversation, const ChatTemplate& chat_template,
                               const LearnOptions& options, std::size_t last) {
  ChatRequest request = request_of(conversation, options);
  request.messages.value = JsonValue::Array(
      conversation.messages.begin(), conversation.messages.begin() + static_cast<std::ptrdiff_t>(last));
  return chat_template.render(request).assistant.size();
}

/// Before the work begins.
void require_little_work(std::size_t turns, std::size_t messages, std::size_t bytes,
                         const std::string& template_name) {
  const double a_turn = static_cast<double>(bytes) + kMessageBytes * static_cast<double>(messages);
  if (static_cast<double>(turns) * a_turn <= kMostWork) return;
  throw ConfigError({template_name + ": a conversation of " + std::to_string(messages) + " messages and " +
                     std::to_string(bytes) + " bytes is too long to find its " + std::to_string(turns) +
                     " assistant turns, each by what is rendered before it; split it, learn the last turn or "
                     "all of it, or use a template with generation tags"});
}

}  // namespace

LearnRule parse_learn_rule(std::string_view name) {
  if (name == "assistant") return LearnRule::kAssistant;
  if (name == "last") return LearnRule::kLast;
  if (name == "all") return LearnRule::kAll;
  throw ConfigError(
      {"what is learned: expected assistant, last or all, found \"" + std::string(name) + "\""});
}

AssistantText assistant_text(const Conversation& conversation, const ChatTemplate& chat_template,
                             const LearnOptions& options) {
  RenderedChat whole = chat_template.render(request_of(conversation, options));
  AssistantText result{std::move(whole.text), std::move(whole.assistant)};
  std::vector<std::size_t> turns;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i)
    if (is_assistant(conversation.messages[i])) turns.push_back(i);
  result.turns = turns.size();
  if (options.rule == LearnRule::kAll) {
    result.ranges = {{0, result.text.size()}};
    return result;
  }
  const bool only_last = options.rule == LearnRule::kLast && !turns.empty();
  if (chat_template.marks_assistant()) {
    if (!only_last) return result;
    const std::size_t before = ranges_before_last(conversation, chat_template, options, turns.back());
    result.ranges.erase(result.ranges.begin(), result.ranges.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                           before, result.ranges.size())));
    return result;
  }
  if (only_last) turns.erase(turns.begin(), turns.end() - 1);
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

LearnedIds learned_ids(const Conversation& conversation, const ChatModel& model, const Tokenizer& tokenizer,
                       const LearnOptions& options) {
  LearnedIds result;
  if (conversation.text) {
    result.ids = tokenizer.encode(*conversation.text, true);
    if (options.end_of_text && (result.ids.empty() || result.ids.back() != *options.end_of_text))
      result.ids.push_back(*options.end_of_text);
    result.learned.assign(result.ids.size(), 1);
    return result;
  }
  LearnOptions all = options;
  for (auto& variable : model.variables(tokenizer))
    all.variables.insert(all.variables.begin(), std::move(variable));
  const AssistantText said =
      assistant_text(conversation, model.chat_template(!conversation.tools.is_null()), all);
  Encoding encoding = tokenizer.encode_with_offsets(said.text, false);
  result.learned = options.rule == LearnRule::kAll ? std::vector<std::uint8_t>(encoding.ids.size(), 1)
                                                   : mask_of(said.ranges, encoding.offsets);
  result.ids = std::move(encoding.ids);
  result.assistant_turns = said.turns;
  result.unplaced_turns = said.unplaced_turns;
  return result;
}

}  // namespace moeloom
