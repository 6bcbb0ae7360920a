// What assistants say in a conversation, behind their reasoning, and where it stands in its text.
#pragma once

#include "moeloom/text/tokenizer.hpp"
#include "text/conversation.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moeloom {

std::string_view trimmed_text(std::string_view text);
/// How much of what is said is reasoning, to the end of its mark.
std::size_t thought_of(std::string_view said);
/// The name of the first function that a message calls, where it says nothing else; empty: none.
std::string called_alone(const JsonValue& message);

/// What message `message` says behind its reasoning, or the name of what it calls.
struct Answer {
  std::size_t message;
  std::string text;
  /// A word that stands in its place.
  std::string stand_in() const { return "StandsForAnswer" + std::to_string(message) + "InItsPlace"; }
};
/// Of each that says or calls something, with words in their places afterwards.
std::vector<Answer> replaced_answers(JsonValue::Array& messages);

/// Where answers stand in `whole`, of which `text` is the same with words in their places; up to the first
/// around which it is not. Left out are those that the template does not write.
std::vector<std::pair<std::size_t, ByteRange>> places_of(std::vector<Answer> said, std::string_view text,
                                                         std::string_view whole);

}  // namespace moeloom
