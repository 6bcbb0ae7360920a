#include "conversation/turns.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "conversation/answers.hpp"

namespace moeloom {
namespace {

// To find a turn, what lies before it is rendered twice: work that grows with the square of a conversation. A
// message costs about as much as so many bytes of text, in a template's loop.
constexpr double kMostWork = 2.0 * (1 << 30);  // bytes: some seconds
constexpr double kMessageBytes = 256;

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

/// Where in `part` that ends which a message says without reasoning before it, and the names of what it
/// calls; none if the part does not hold all of it.
std::optional<std::size_t> end_of_message(std::string_view part, const JsonValue& message) {
  std::size_t end = 0;
  const auto holds = [&](std::string_view piece) {
    const std::size_t at = part.rfind(piece);
    if (at != std::string_view::npos && !piece.empty()) end = std::max(end, at + piece.size());
    return at != std::string_view::npos;
  };
  if (const JsonValue* content = message.find("content"); content != nullptr && content->text() != nullptr) {
    const std::string_view said = *content->text();
    if (!holds(trimmed_text(said.substr(thought_of(said))))) return std::nullopt;
  }
  const JsonValue* calls = message.find("tool_calls");
  if (calls != nullptr && calls->array() != nullptr) {
    for (const JsonValue& call : *calls->array()) {
      const JsonValue* function = call.find("function") == nullptr ? &call : call.find("function");
      if (!holds(*function->find("name")->text())) return std::nullopt;
    }
  }
  return end > 0 ? std::optional(end) : std::nullopt;
}

/// How much of what two texts have in common stands before a mark that each closes in its own way: "<|" of
/// "<|end|>" and "<|user|>" belongs to what follows.
std::size_t before_open_mark(std::string_view text) {
  std::size_t length = text.size();
  for (const auto& [open, close] : {std::pair('<', '>'), std::pair('[', ']')}) {
    const std::size_t last = text.rfind(open);
    if (last != std::string_view::npos && text.find(close, last) == std::string_view::npos)
      length = std::min(length, last);
  }
  return length;
}

/// How far `text` goes on as `other` does, in whole marks.
std::size_t common_marks(std::string_view text, std::string_view other) {
  return before_open_mark(text.substr(0, common_prefix(text, other)));
}

}  // namespace

ChatRequest request_of(const Conversation& conversation, const LearnOptions& options) {
  ChatRequest request;
  request.messages.value = conversation.messages;
  request.tools = conversation.tools;
  request.variables = options.variables;
  // A row's own come last, and win.
  request.variables.insert(request.variables.end(), conversation.template_variables.begin(),
                           conversation.template_variables.end());
  request.now = options.now;
  return request;
}

void require_little_work(std::size_t turns, std::size_t messages, std::size_t bytes,
                         const std::string& template_name) {
  const double a_turn = static_cast<double>(bytes) + kMessageBytes * static_cast<double>(messages);
  if (static_cast<double>(turns) * a_turn <= kMostWork) return;
  throw ConfigError({template_name + ": a conversation of " + std::to_string(messages) + " messages and " +
                     std::to_string(bytes) + " bytes is too long to find its " + std::to_string(turns) +
                     " assistant turns, each by what is rendered before it; split it, learn the last turn or "
                     "all of it, or use a template with generation tags"});
}

TurnFinder::TurnFinder(const Conversation& conversation, const ChatTemplate& chat_template,
                       const LearnOptions& options, const std::string& whole)
    : conversation_(conversation),
      chat_template_(chat_template),
      request_(request_of(conversation, options)),
      whole_(whole) {}

std::optional<ByteRange> TurnFinder::turn(std::size_t i) {
  const std::optional<std::string> with_turn = rendered(i + 1, false);
  const std::optional<std::size_t> begin = begin_of(i);
  std::optional<ByteRange> found;
  if (with_turn && begin) found = turn_at(*begin, i, *with_turn);
  return found ? found : turn_by_answer(i, with_turn);
}

std::optional<ByteRange> TurnFinder::turn_at(std::size_t begin, std::size_t i,
                                             std::string_view with_turn) const {
  if (whole_.starts_with(with_turn) && with_turn.size() > begin) return ByteRange{begin, with_turn.size()};
  if (common_prefix(with_turn, whole_) < begin) return std::nullopt;
  const std::string_view rest = std::string_view(whole_).substr(begin), turn = with_turn.substr(begin);
  const std::string_view end_of_it = rest.substr(0, longest_end(turn, rest));
  if (end_of_message(end_of_it, conversation_.messages[i])) return ByteRange{begin, begin + end_of_it.size()};
  // The template closes a conversation's last turn in another way than those before.
  const std::string_view common = rest.substr(0, common_prefix(turn, rest));
  const std::optional<std::size_t> said = end_of_message(common, conversation_.messages[i]);
  if (!said) return std::nullopt;
  return ByteRange{begin, begin + *said + before_open_mark(common.substr(*said))};
}

/// Where the text before a turn depends on what follows it, as where a system message moves to the last
/// user's.
std::optional<ByteRange> TurnFinder::turn_by_answer(std::size_t i,
                                                    const std::optional<std::string>& with_turn) {
  const std::optional<ByteRange> answer = answers()[i];
  if (!answer) return std::nullopt;
  if (!called_alone(conversation_.messages[i]).empty()) return turn_by_call(i, answer->begin, with_turn);
  ByteRange range = *answer;
  const std::string_view whole = whole_, said = whole.substr(range.begin, range.end - range.begin);
  if (i + 1 == conversation_.messages.size()) {
    range.end = whole.size();
  } else if (const std::size_t at = with_turn ? with_turn->rfind(said) : std::string::npos;
             at != std::string::npos) {
    range.end += common_marks(whole.substr(range.end), std::string_view(*with_turn).substr(at + said.size()));
  }
  return range;
}

/// What the turn adds to the prompt before it, where the name that it calls stands at `name` of the whole
/// text.
std::optional<ByteRange> TurnFinder::turn_by_call(std::size_t i, std::size_t name,
                                                  const std::optional<std::string>& with_turn) {
  std::optional<std::string> before = rendered(i, true);
  if (!before || !with_turn || !with_turn->starts_with(*before)) before = rendered(i, false);
  if (!before || !with_turn || !with_turn->starts_with(*before)) return std::nullopt;
  const std::string_view turn = std::string_view(*with_turn).substr(before->size());
  const std::string called = called_alone(conversation_.messages[i]);
  for (std::size_t at = turn.find(called); at != turn.npos && at <= name; at = turn.find(called, at + 1))
    if (std::string_view(whole_).substr(name - at).starts_with(turn))
      return ByteRange{name - at, name - at + turn.size()};
  return std::nullopt;
}

/// Answers by a text in which words stand in their places: what is rendered around them must be the same.
const std::vector<std::optional<ByteRange>>& TurnFinder::answers() {
  if (!answers_.empty()) return answers_;
  answers_.resize(conversation_.messages.size());
  JsonValue::Array messages = conversation_.messages;
  std::vector<Answer> said = replaced_answers(messages);
  request_.messages.value = std::move(messages);
  request_.add_generation_prompt = false;
  try {
    const std::string text = chat_template_.render(request_).text;
    for (const auto& [message, place] : places_of(said, text, whole_)) answers_[message] = place;
  } catch (const TemplateError&) {
  }
  return answers_;
}

/// The first messages' text; none where the template refuses them.
std::optional<std::string> TurnFinder::rendered(std::size_t messages, bool add_generation_prompt) {
  request_.messages.value = JsonValue::Array(
      conversation_.messages.begin(), conversation_.messages.begin() + static_cast<std::ptrdiff_t>(messages));
  request_.add_generation_prompt = add_generation_prompt;
  try {
    return chat_template_.render(request_).text;
  } catch (const TemplateError&) {
    return std::nullopt;
  }
}

std::optional<std::size_t> TurnFinder::begin_of(std::size_t i) {
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

}  // namespace moeloom
