// A row's columns and a turn's members that nobody reads: which are only named, and which are refused.
#include "moeloom/base/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "message.hpp"

namespace moeloom {
namespace {

/// Of preferences, which one of two answers is.
constexpr std::array<std::string_view, 4> kPreferences = {"chosen", "rejected", "kto", "preferred"};
/// That a shape without them would leave out of the text, or that belong to chat_template_kwargs.
constexpr std::array<std::string_view, 13> kParts = {
    "system", "system_prompt", "functions", "documents",       "image",    "images",          "video",
    "videos", "audio",         "audios",    "enable_thinking", "thinking", "reasoning_effort"};

/// "LossMask", "loss-mask" and "loss_mask": "loss", "mask".
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  bool was_small = false;
  for (const char letter : name) {
    const auto c = static_cast<unsigned char>(letter);
    const bool begins = std::isalnum(c) == 0 || (std::isupper(c) != 0 && was_small);
    if (begins && !words.back().empty()) words.emplace_back();
    if (std::isalnum(c) != 0) words.back() += static_cast<char>(std::tolower(c));
    was_small = std::islower(c) != 0;
  }
  return words;
}

bool is_word_of_learning(std::string_view word) {
  constexpr std::array kBeginnings = {"train", "mask", "label", "weight", "lossm"};
  constexpr std::array kWhole = {"loss", "losses", "learn", "learned", "unmasked"};
  return std::ranges::any_of(kBeginnings, [&](const char* begin) { return word.starts_with(begin); }) ||
         std::ranges::find(kWhole, word) != kWhole.end();
}

bool is_list_of_marks(const JsonValue& value) {
  if (value.array() == nullptr || value.array()->empty()) return false;
  return std::ranges::all_of(*value.array(), [](const JsonValue& each) {
    return each.boolean() != nullptr || each.integer() != nullptr || each.number() != nullptr;
  });
}

/// By its name, or as a list of masks.
bool could_mean_something(const std::string& name, const JsonValue& value) {
  return could_say_what_is_learned(name) || std::ranges::count(kParts, name) > 0 || is_list_of_marks(value);
}

bool is_turn_weight(std::string_view name) {
  return std::ranges::count(kTurnWeights, name) > 0;
}

/// Of a turn, and of the parts of its content. What a turn says of its weight is read, so it stays: a row's
/// column of that name is another thing.
void take_out_of_turn(const std::set<std::string>& keys, JsonValue& turn) {
  auto* object = std::get_if<JsonValue::Object>(&turn.value);
  if (object == nullptr) return;
  std::erase_if(*object,
                [&](const auto& each) { return keys.contains(each.name) && !is_turn_weight(each.name); });
  for (JsonValue::Member& member : *object)
    if (auto* parts = std::get_if<JsonValue::Array>(&member.value.value); parts && member.name == "content")
      for (JsonValue& part : *parts)
        if (auto* inner = std::get_if<JsonValue::Object>(&part.value))
          std::erase_if(*inner, [&](const auto& each) { return keys.contains(each.name); });
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
  for (const auto& [name, value] : line.members()) {
    const auto is_one = [](const std::string& word) { return std::ranges::count(kPreferences, word) > 0; };
    if (!value.is_null() && std::ranges::any_of(words_of(name), is_one)) found.push_back(name);
  }
  if (!found.empty())
    line.fail(joined(found) + ": training on preferences is not supported; give one answer as a completion" +
              way_around(found));
}

std::vector<std::string> other_columns(const ConversationLine& line,
                                       const std::vector<std::string_view>& read) {
  std::vector<std::string> others, refused;
  for (const auto& [name, value] : line.members()) {
    const bool is_false = value.boolean() != nullptr && !*value.boolean();  // as a column it says something
    if (std::ranges::count(read, name) > 0 || value.is_null()) continue;
    if (says_nothing(value) && !is_false && !could_say_what_is_learned(name)) continue;
    (could_mean_something(name, value) ? refused : others).push_back(name);
  }
  if (!refused.empty())
    line.fail("unknown keys that may say what is learned: " + joined(refused) + way_around(refused));
  return others;
}

void take_out(const std::set<std::string>& keys, JsonValue& row) {
  auto* object = std::get_if<JsonValue::Object>(&row.value);
  if (object == nullptr || keys.empty()) return;
  std::erase_if(*object, [&](const JsonValue::Member& each) { return keys.contains(each.name); });
  for (JsonValue::Member& member : *object)
    if (auto* turns = std::get_if<JsonValue::Array>(&member.value.value))
      for (JsonValue& turn : *turns) take_out_of_turn(keys, turn);
}

}  // namespace moeloom
