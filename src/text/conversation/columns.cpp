// A row's columns and a turn's members that nobody reads: which are only named, and which are refused.
#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "message.hpp"

namespace moeloom {
namespace {

/// One of two answers, or which of them a row's is.
constexpr std::array<std::string_view, 7> kPreferences = {
    "chosen",          "rejected",         "kto_tag", "chosen_response", "rejected_response",
    "chosen_messages", "rejected_messages"};
/// That a shape without them would leave out of the text, or that belong to chat_template_kwargs.
constexpr std::array<std::string_view, 13> kParts = {
    "system", "system_prompt", "functions", "documents", "image",           "images",          "video",
    "videos", "audio",         "audios",    "thinking",  "enable_thinking", "reasoning_effort"};

/// "LossMask", "loss-mask" and "loss_mask": "loss", "mask".
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  bool was_small = false;
  for (const char letter : name) {
    const auto c = static_cast<unsigned char>(letter);
    const bool begins = std::isalpha(c) == 0 || (std::isupper(c) != 0 && was_small);
    if (begins && !words.back().empty()) words.emplace_back();
    if (std::isalpha(c) != 0) words.back() += static_cast<char>(std::tolower(c));
    was_small = std::islower(c) != 0;
  }
  return words;
}

bool is_word_of_learning(std::string_view word) {
  constexpr std::array kWords = {"train",     "trained",  "trainable",  "weight",   "weights",
                                 "mask",      "masks",    "masked",     "unmask",   "label",
                                 "labels",    "loss",     "losses",     "learn",    "learned",
                                 "learnable", "lossmask", "lossweight", "labelmask"};
  return std::ranges::find(kWords, word) != kWords.end();
}

bool is_list_of_marks(const JsonValue& value) {
  if (value.array() == nullptr || value.array()->empty()) return false;
  return std::ranges::all_of(*value.array(), [](const JsonValue& each) {
    return each.boolean() != nullptr || each.integer() != nullptr || each.number() != nullptr;
  });
}

bool is_false(const JsonValue& value) {
  return value.boolean() != nullptr && !*value.boolean();
}

bool belongs_into_text(std::string_view name, const JsonValue& value) {
  if (std::ranges::count(kParts, name) == 0) return false;
  return !says_nothing(value) || name == "enable_thinking";
}

}  // namespace

bool says_nothing(const JsonValue& value) {
  return value.is_null() || (value.boolean() != nullptr && !*value.boolean()) ||
         (value.text() != nullptr && value.text()->empty()) ||
         (value.array() != nullptr && value.array()->empty()) ||
         (value.object() != nullptr && value.object()->empty());
}

bool could_say_what_is_learned(std::string_view name) {
  return std::ranges::any_of(words_of(name),
                             [](const std::string& word) { return is_word_of_learning(word); });
}

std::string way_around(const std::vector<std::string>& keys) {
  return "; ignored keys = " + joined(keys, ",") + " reads on without " + (keys.size() == 1 ? "it" : "them");
}

void require_no_preference(const ConversationLine& line) {
  std::vector<std::string> found;
  for (const auto& [name, value] : line.members())
    if (std::ranges::count(kPreferences, name) > 0 &&
        (!says_nothing(value) || (is_false(value) && name == "kto_tag")))
      found.push_back(name);
  if (!found.empty())
    line.fail(joined(found) + ": training on preferences is not supported; give one answer as a completion" +
              way_around(found));
}

std::vector<std::string> other_columns(const ConversationLine& line,
                                       const std::vector<std::string_view>& read) {
  std::vector<std::string> others, of_learning, of_text;
  for (const auto& [name, value] : line.members()) {
    if (std::ranges::count(read, name) > 0 || (says_nothing(value) && !is_false(value))) continue;
    if (could_say_what_is_learned(name) || is_list_of_marks(value))
      of_learning.push_back(name);
    else
      (belongs_into_text(name, value) ? of_text : others).push_back(name);
  }
  if (!of_learning.empty())
    line.fail("unknown keys that may say what is learned: " + joined(of_learning) + way_around(of_learning));
  if (!of_text.empty())
    line.fail("unknown keys that may belong into the text: " + joined(of_text) + way_around(of_text));
  return others;
}

}  // namespace moeloom
