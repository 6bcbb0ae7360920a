#include "tokenizer/normalizer.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <type_traits>

namespace moeloom::tokenizing {
namespace {

/// What SentencePiece's rules "nmt" drop, and what they make a space.
bool nmt_drops(char32_t c) {
  return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
         c == 0x9F;
}
bool nmt_makes_space(char32_t c) {
  return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

/// rewrite(character, begin, end) puts what stands for it.
template <typename Rewrite>
void each_character(std::string_view text, const Rewrite& rewrite) {
  for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
    const char32_t character = next_code_point(text, end);
    rewrite(character, at, end);
  }
}

/// One step on one text; each overload is a type of tokenizer.json.
struct Step {
  const Piece& piece;
  const Context& context;

  AlignedText operator()(NormalForm form) const {
    const std::string_view text = piece.text;
    const char32_t bound = first_that_may_change(form);
    Rewriter rewriter(piece, context);
    // From the last character that cannot change before one that may, to the next such.
    for (std::size_t plain = 0, at = 0, last = 0; at < text.size();) {
      const std::size_t begin = at;
      if (next_code_point(text, at) < bound) {
        last = begin;
        if (at == text.size()) rewriter.keep(plain, at);
        continue;
      }
      rewriter.keep(plain, last);
      std::size_t end = at;
      for (std::size_t next = at; next < text.size() && next_code_point(text, next) >= bound;) end = next;
      rewriter.put(in_normal_form(text.substr(last, end - last), form), last);
      plain = last = at = end;
    }
    return rewriter.take();
  }

  AlignedText operator()(const StripSpace& strip) const {
    const std::string_view text = piece.text;
    std::size_t begin = text.size(), end = 0;
    each_character(text, [&](char32_t c, std::size_t from, std::size_t to) {
      if (is_white_space(c)) return;
      begin = std::min(begin, from);
      end = to;
    });
    Rewriter rewriter(piece, context);
    if (begin == text.size() && (strip.left || strip.right)) return rewriter.take();
    rewriter.keep(strip.left ? begin : 0, strip.right ? end : text.size());
    return rewriter.take();
  }

  AlignedText operator()(const Prepend& prepend) const {
    Rewriter rewriter(piece, context);
    rewriter.put(prepend.content, 0);
    rewriter.keep(0, piece.text.size());
    return rewriter.take();
  }

  AlignedText operator()(const Replace& replace) const { return replaced(piece, replace, context); }

  AlignedText operator()(Lowercase) const {
    Rewriter rewriter(piece, context);
    each_character(piece.text, [&](char32_t c, std::size_t at, std::size_t) {
      for (const char32_t lower : lower_case(c)) rewriter.put(lower, at);
    });
    return rewriter.take();
  }

  AlignedText operator()(StripAccents) const {
    Rewriter rewriter(piece, context);
    each_character(piece.text, [&](char32_t c, std::size_t at, std::size_t end) {
      if (!is_mark(c)) rewriter.keep(at, end);
    });
    return rewriter.take();
  }

  AlignedText operator()(Nmt) const {
    Rewriter rewriter(piece, context);
    each_character(piece.text, [&](char32_t c, std::size_t at, std::size_t end) {
      if (nmt_makes_space(c))
        rewriter.put(U' ', at);
      else if (!nmt_drops(c))
        rewriter.keep(at, end);
    });
    return rewriter.take();
  }

  AlignedText operator()(BytesToLetters) const { return with_letters(piece, context); }

  AlignedText operator()(const PrecompiledMap& map) const { return map.apply(piece, context); }
};

/// Whether a step may change the text: a look at its bytes.
bool may_change(const NormalizerStep& step, std::string_view text) {
  if (text.empty()) return false;
  const NormalForm* form = std::get_if<NormalForm>(&step);
  if (form == nullptr) return true;
  // Lead bytes of code points below U+0300 are below 0xCC, of those below U+00A0 and U+00C0 below 0xC2 or
  // 0xC3.
  const std::uint8_t bound = *form == NormalForm::kNfc ? 0xCC : 0xC2;
  return std::ranges::any_of(text, [&](char c) { return static_cast<std::uint8_t>(c) >= bound; });
}

}  // namespace

Replace replace_of(const Field& field) {
  return {Pattern(field.member("pattern")), field.member("content").text()};
}

AlignedText replaced(const Piece& piece, const Replace& replace, const Context& context) {
  Rewriter rewriter(piece, context);
  Matches matches(replace.pattern, piece.text, context.space);
  std::size_t kept = 0;
  while (const auto match = matches.next()) {
    rewriter.keep(kept, match->begin);
    rewriter.put(replace.content, std::max<std::size_t>(match->end, 1) - 1);
    kept = match->end;
  }
  rewriter.keep(kept, piece.text.size());
  return rewriter.take();
}

Normalizer::Normalizer(const Field& field) {
  add(field);
}

void Normalizer::add(const Field& field) {
  enum Type {
    kSequence,
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kAccents,
    kStrip,
    kPrepend,
    kReplace,
    kNmt,
    kBytes
  };
  switch (field.choice("type", {"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents",
                                "Strip", "Prepend", "Replace", "Nmt", "ByteLevel", "Precompiled"})) {
    case kSequence:
      for (const Field& each : field.member("normalizers").items()) add(each);
      return;
    case kNfc:
      steps_.emplace_back(NormalForm::kNfc);
      return;
    case kNfd:
      steps_.emplace_back(NormalForm::kNfd);
      return;
    case kNfkc:
      steps_.emplace_back(NormalForm::kNfkc);
      return;
    case kNfkd:
      steps_.emplace_back(NormalForm::kNfkd);
      return;
    case kLowercase:
      steps_.emplace_back(Lowercase{});
      return;
    case kAccents:
      steps_.emplace_back(StripAccents{});
      return;
    case kStrip:
      steps_.emplace_back(
          StripSpace{field.member("strip_left").boolean(), field.member("strip_right").boolean()});
      return;
    case kPrepend:
      steps_.emplace_back(Prepend{field.member("prepend").text()});
      return;
    case kReplace:
      steps_.emplace_back(replace_of(field));
      return;
    case kNmt:
      steps_.emplace_back(Nmt{});
      return;
    case kBytes:
      steps_.emplace_back(BytesToLetters{});
      return;
    default:
      steps_.emplace_back(PrecompiledMap(field.member("precompiled_charsmap")));
  }
}

std::optional<AlignedText> Normalizer::apply(const Piece& piece, const Context& context) const {
  std::optional<AlignedText> current;
  for (const NormalizerStep& step : steps_) {
    const Piece before = current ? current->piece() : piece;
    if (may_change(step, before.text)) current = std::visit(Step{before, context}, step);
  }
  return current;
}

std::string Normalizer::apply(std::string_view text) const {
  const RegexSpace space;
  const auto changed = apply(Piece{.text = text}, context_for(text, false, space));
  return changed ? changed->text : std::string(text);
}

}  // namespace moeloom::tokenizing
