#include "tokenizer/pre_tokenizer.hpp"

#include <algorithm>

#include "tokenizer/split.hpp"

namespace moeloom::tokenizing {
namespace {

// GPT-2's.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool is_of(CharacterClass wanted, char32_t c) {
  if (wanted == CharacterClass::kNumber) return is_number(c);
  return wanted == CharacterClass::kPunctuation ? is_punctuation(c) : is_white_space(c);
}

/// The next character of the class at `at` or later, which then stands behind it.
std::optional<ByteRange> next_of(CharacterClass wanted, std::string_view text, std::size_t& at) {
  while (at < text.size()) {
    const std::size_t begin = at;
    if (is_of(wanted, next_code_point(text, at))) return ByteRange{begin, at};
  }
  return std::nullopt;
}

enum class Sort { kSpace, kWord, kOther };

Sort sort_of(char32_t c) {
  if (is_word_character(c)) return Sort::kWord;
  return is_white_space(c) ? Sort::kSpace : Sort::kOther;
}

std::optional<ByteRange> next_word(std::string_view text, std::size_t& at) {
  while (at < text.size()) {
    const std::size_t begin = at;
    const Sort sort = sort_of(next_code_point(text, at));
    if (sort == Sort::kSpace) continue;
    for (std::size_t next = at; next < text.size() && sort_of(next_code_point(text, next)) == sort;)
      at = next;
    return ByteRange{begin, at};
  }
  return std::nullopt;
}

template <typename Emit>
void split_by(const Split& split, std::string_view text, const RegexSpace& space, const Emit& emit) {
  const auto cut = [&](auto next) { split_at(text.size(), split.behavior, split.invert, next, emit); };
  std::size_t at = 0;
  if (const Pattern* pattern = std::get_if<Pattern>(&split.sought)) {
    Matches matches(*pattern, text, space);
    cut([&] { return matches.next(); });
  } else if (const CharacterClass* wanted = std::get_if<CharacterClass>(&split.sought)) {
    cut([&] { return next_of(*wanted, text, at); });
  } else {
    cut([&] { return next_word(text, at); });
  }
}

AlignedText with_prefix(const Piece& piece, std::string_view prefix, const Context& context) {
  Rewriter rewriter(piece, context);
  rewriter.put(prefix, 0);
  rewriter.keep(0, piece.text.size());
  return rewriter.take();
}

AlignedText with_metaspaces(const Piece& piece, const Metaspace& metaspace, const Context& context) {
  Rewriter rewriter(piece, context);
  const std::string_view text = piece.text;
  const bool begins_with_it = text.starts_with(' ') || text.starts_with(metaspace.replacement);
  const bool wanted = metaspace.prepend == Metaspace::Prepend::kAlways ||
                      (metaspace.prepend == Metaspace::Prepend::kFirst && piece.begins_input());
  if (wanted && !begins_with_it) rewriter.put(metaspace.replacement, 0);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    rewriter.keep(at, space);
    if (space < text.size()) rewriter.put(metaspace.replacement, space);
    at = space + 1;
  }
  return rewriter.take();
}

SplitBehavior behavior_of(const Field& field, std::optional<std::size_t> otherwise = std::nullopt) {
  return static_cast<SplitBehavior>(field.choice(
      "behavior", {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}, otherwise));
}

}  // namespace

Metaspace metaspace_of(const Field& field) {
  using enum Metaspace::Prepend;
  Metaspace metaspace;
  append_utf8(metaspace.replacement, field.member("replacement").character());
  if (field.optional("prepend_scheme"))
    metaspace.prepend =
        static_cast<Metaspace::Prepend>(field.choice("prepend_scheme", {"always", "never", "first"}));
  if (!field.boolean_or("add_prefix_space", true)) metaspace.prepend = kNever;
  return metaspace;
}

PreTokenizer::PreTokenizer(const Field& field) {
  add(field);
}

void PreTokenizer::add(const Field& field) {
  enum Type { kSequence, kSplit, kByteLevel, kMetaspace, kDigits, kPunctuation, kWhitespaceSplit };
  using enum SplitBehavior;
  switch (field.choice("type", {"Sequence", "Split", "ByteLevel", "Metaspace", "Digits", "Punctuation",
                                "WhitespaceSplit", "Whitespace"})) {
    case kSequence:
      for (const Field& each : field.member("pretokenizers").items()) add(each);
      return;
    case kSplit:
      steps_.emplace_back(
          Split{Pattern(field.member("pattern")), behavior_of(field), field.boolean_or("invert", false)});
      return;
    case kByteLevel:
      return add_byte_level(field);
    case kMetaspace:
      return add_metaspace(field);
    case kDigits:
      steps_.emplace_back(Split{CharacterClass::kNumber,
                                field.boolean_or("individual_digits", false) ? kIsolated : kContiguous,
                                false});
      return;
    case kPunctuation:
      steps_.emplace_back(Split{CharacterClass::kPunctuation,
                                behavior_of(field, static_cast<std::size_t>(kIsolated)), false});
      return;
    case kWhitespaceSplit:
      steps_.emplace_back(Split{CharacterClass::kWhiteSpace, kRemoved, false});
      return;
    default:
      steps_.emplace_back(Split{Words{}, kRemoved, true});
  }
}

void PreTokenizer::add_byte_level(const Field& field) {
  if (field.boolean_or("add_prefix_space", true)) steps_.emplace_back(PrefixSpace{});
  if (field.boolean_or("use_regex", true))
    steps_.emplace_back(
        Split{Pattern(Regex(kByteLevelPattern, field.path())), SplitBehavior::kIsolated, false});
  steps_.emplace_back(LetterForEachByte{});
}

void PreTokenizer::add_metaspace(const Field& field) {
  const Metaspace metaspace = metaspace_of(field);
  steps_.emplace_back(metaspace);
  if (field.boolean_or("split", true))
    steps_.emplace_back(Split{Pattern(metaspace.replacement), SplitBehavior::kMergedWithNext, false});
}

bool PreTokenizer::take_last_letters() {
  if (steps_.empty() || !std::holds_alternative<LetterForEachByte>(steps_.back())) return false;
  steps_.pop_back();
  return true;
}

bool PreTokenizer::asks_for_begin() const {
  return std::ranges::any_of(steps_, [](const PreTokenizerStep& step) {
    const Metaspace* metaspace = std::get_if<Metaspace>(&step);
    return metaspace != nullptr && metaspace->prepend == Metaspace::Prepend::kFirst;
  });
}

void PreTokenizer::run(const Piece& piece, const Context& context, std::size_t step, UsePiece call,
                       const void* use) const {
  if (piece.text.empty()) return;
  if (step == steps_.size()) return call(use, piece);
  const auto go_on = [&](const Piece& next) { run(next, context, step + 1, call, use); };
  if (const Split* split = std::get_if<Split>(&steps_[step])) {
    split_by(*split, piece.text, context.space,
             [&](std::size_t begin, std::size_t end) { go_on(piece.part(begin, end)); });
  } else if (const Metaspace* metaspace = std::get_if<Metaspace>(&steps_[step])) {
    const AlignedText changed = with_metaspaces(piece, *metaspace, context);
    go_on(changed.piece());
  } else if (std::holds_alternative<LetterForEachByte>(steps_[step])) {
    const AlignedText changed = with_letters(piece, context);
    go_on(changed.piece());
  } else if (piece.text.starts_with(' ')) {
    go_on(piece);
  } else {
    const AlignedText changed = with_prefix(piece, " ", context);
    go_on(changed.piece());
  }
}

}  // namespace moeloom::tokenizing
