#include "tokenizer/aligned_text.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tokenizer/byte_alphabet.hpp"

namespace moeloom::tokenizing {
namespace {

bool continues_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<std::uint8_t>(text[at]) & 0xC0) == 0x80;
}

std::size_t length_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  if (end < text.size()) next_code_point(text, end);
  return end - at;
}

}  // namespace

Piece Piece::part(std::size_t from, std::size_t to) const {
  return {text.substr(from, to - from), begin + from, rewritten,
          origins == nullptr ? nullptr : origins + from};
}

ByteRange Piece::origin(std::size_t from, std::size_t to) const {
  if (from == to) return {};
  if (rewritten)
    return origins == nullptr ? ByteRange{} : ByteRange{origins[from].begin, origins[to - 1].end};
  while (from > 0 && continues_character(text, from)) --from;
  while (continues_character(text, to)) ++to;
  return {begin + from, begin + to};
}

Context context_for(std::string_view text, bool tracked, const RegexSpace& space) {
  constexpr std::size_t kRoom = std::size_t{1} << 18;
  constexpr std::size_t kGrowth = 64;  // the longest that a normal form makes of a character is 11 times it
  constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();  // Token's places
  return {space, tracked, std::min(kMost, kRoom + kGrowth * text.size())};
}

Rewriter::Rewriter(const Piece& old, const Context& context) : old_(old), context_(context) {
  fresh_.text.reserve(old.text.size() + 16);
  if (context.tracked) fresh_.origins.reserve(old.text.size() + 16);
}

void Rewriter::check_length() const {
  if (fresh_.text.size() > context_.most_bytes)
    throw ConfigError({"the tokenizer's steps make more than " + std::to_string(context_.most_bytes) +
                       " bytes of one text"});
}

void Rewriter::keep(std::size_t from, std::size_t to) {
  fresh_.text.append(old_.text, from, to - from);
  if (!context_.tracked) return;
  for (std::size_t at = from; at < to; ++at) fresh_.origins.push_back(old_.origin(at, at + 1));
}

void Rewriter::put(std::string_view content, std::size_t place) {
  fresh_.text += content;
  check_length();
  if (context_.tracked)
    fresh_.origins.insert(fresh_.origins.end(), content.size(), old_.origin(place, place + 1));
}

void Rewriter::put(char32_t code_point, std::size_t place) {
  const std::size_t before = fresh_.text.size();
  append_utf8(fresh_.text, code_point);
  if (context_.tracked)
    fresh_.origins.insert(fresh_.origins.end(), fresh_.text.size() - before, old_.origin(place, place + 1));
}

void Rewriter::put(std::span<const Change> changes, std::size_t from) {
  std::size_t at = from;
  for (const Change& each : changes) {
    const bool added = each.change > 0;
    put(each.code_point, added ? std::max<std::size_t>(at, 1) - 1 : std::min(at, old_.text.size() - 1));
    for (int passed = each.change; passed <= 0; ++passed) at += length_at(old_.text, at);
  }
  check_length();
}

AlignedText Rewriter::take() {
  check_length();
  return std::move(fresh_);
}

AlignedText with_letters(const Piece& piece, const Context& context) {
  Rewriter rewriter(piece, context);
  for (std::size_t at = 0; at < piece.text.size(); ++at)
    rewriter.put(letter_of(static_cast<std::uint8_t>(piece.text[at])), at);
  return rewriter.take();
}

}  // namespace moeloom::tokenizing
