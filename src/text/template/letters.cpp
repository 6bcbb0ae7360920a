#include "letters.hpp"

#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utf8proc.h>

#include "special_letters.hpp"

namespace moeloom::jinja {
namespace {

utf8proc_category_t category(char32_t letter) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(letter));
}

char32_t to_upper(char32_t letter) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(letter)));
}
char32_t to_lower(char32_t letter) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(letter)));
}
char32_t to_title(char32_t letter) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(letter)));
}

/// utf8proc maps one letter to one.
void append_upper(std::string& text, char32_t letter, bool title) {
  const auto several = title ? several_title(letter) : several_upper(letter);
  if (!several) return append_utf8(text, title ? to_title(letter) : to_upper(letter));
  for (const char32_t each : *several) append_utf8(text, each);
}

bool has_case(char32_t letter) {
  return is_upper(letter) || is_lower(letter) || category(letter) == UTF8PROC_CATEGORY_LT;
}

std::size_t previous(std::string_view text, std::size_t end) {
  do --end;
  while (end > 0 && (static_cast<std::uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

template <typename Drops>
std::string_view cut_left(std::string_view text, const Drops& drops) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (!drops(next_code_point(text, at))) return text.substr(begin);
  }
  return {};
}

template <typename Drops>
std::string_view cut_right(std::string_view text, const Drops& drops) {
  while (!text.empty()) {
    const std::size_t begin = previous(text, text.size());
    std::size_t at = begin;
    if (!drops(next_code_point(text, at))) return text;
    text = text.substr(0, begin);
  }
  return text;
}

/// Case_Ignorable of the Unicode Standard, D136: by category, or in the middle of words (Word_Break
/// MidLetter, MidNumLet, Single_Quote).
bool is_case_ignorable(char32_t letter) {
  constexpr std::u32string_view kInsideWords =
      U"\u0027\u002E\u003A\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E"
      U"\uFF1A";
  switch (category(letter)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return kInsideWords.find(letter) != std::u32string_view::npos;
  }
}

/// Final_Sigma of the Unicode Standard, table 3-17: the sigma in [begin, behind) ends a word.
bool ends_a_word(std::string_view text, std::size_t begin, std::size_t behind) {
  const std::string_view before = cut_right(text.substr(0, begin), is_case_ignorable);
  const std::string_view after = cut_left(text.substr(behind), is_case_ignorable);
  std::size_t at = before.empty() ? 0 : previous(before, before.size()), first = 0;
  return !before.empty() && has_case(next_code_point(before, at)) &&
         (after.empty() || !has_case(next_code_point(after, first)));
}

/// The letter of `text` that ends before `behind`. utf8proc maps one letter to one.
void append_lower(std::string& to, char32_t letter, std::string_view text, std::size_t behind) {
  constexpr char32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2, kDottedI = 0x130;
  if (letter == kDottedI)
    to += "i\u0307";
  else if (letter == kCapitalSigma)
    append_utf8(to, ends_a_word(text, previous(text, behind), behind) ? kFinalSigma : kSigma);
  else
    append_utf8(to, to_lower(letter));
}

/// map(result, letter, where it ends) for each letter.
std::string mapped(std::string_view text,
                   const std::function<void(std::string&, char32_t, std::size_t)>& map) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t letter = next_code_point(text, at);
    map(result, letter, at);
  }
  return result;
}

std::u32string letters_in(std::string_view text) {
  std::u32string letters;
  for (std::size_t at = 0; at < text.size();) letters += next_code_point(text, at);
  std::ranges::sort(letters);
  return letters;
}

}  // namespace

bool is_python_space(char32_t letter) {
  return is_white_space(letter) || (letter >= 0x1C && letter <= 0x1F);
}

bool is_printable(char32_t letter) {
  if (letter == ' ') return true;
  switch (category(letter)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_letter(char32_t letter) {
  const utf8proc_category_t kind = category(letter);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t letter) {
  return category(letter) == UTF8PROC_CATEGORY_ND;
}
int decimal_value(char32_t letter) {
  // Digits of a writing system stand in a row from 0 to 9; only the mathematical ones follow one another.
  char32_t first = letter;
  while (first > 0 && is_decimal(first - 1)) --first;
  return static_cast<int>((letter - first) % 10);
}
bool is_digit(char32_t letter) {
  return is_decimal(letter) || is_other_digit(letter);
}
bool is_numeric(char32_t letter) {
  const utf8proc_category_t kind = category(letter);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO ||
         is_number_ideograph(letter);
}
bool is_upper(char32_t letter) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(letter)) != 0;
}
bool is_lower(char32_t letter) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(letter)) != 0;
}

bool is_identifier(std::string_view text) {
  bool first = true;
  for (std::size_t at = 0; at < text.size(); first = false) {
    const char32_t letter = next_code_point(text, at);
    const utf8proc_category_t kind = category(letter);
    const IdentifierRule rule = identifier_rule(letter);
    const bool by_category = letter == '_' || is_letter(letter) || kind == UTF8PROC_CATEGORY_NL;
    const bool begins = rule == IdentifierRule::kCategory ? by_category : rule == IdentifierRule::kAlways;
    const bool follows = rule == IdentifierRule::kFollows || kind == UTF8PROC_CATEGORY_MN ||
                         kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_ND ||
                         kind == UTF8PROC_CATEGORY_PC;
    if (!begins && (first || !follows)) return false;
  }
  return !text.empty();
}

bool is_titled(std::string_view text) {
  bool inside = false;
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t letter = next_code_point(text, at);
    const bool small = is_lower(letter);
    const bool begins = is_upper(letter) || category(letter) == UTF8PROC_CATEGORY_LT;
    if (begins ? inside : small && !inside) return false;
    inside = begins || small;
    any = any || inside;
  }
  return any;
}

std::string upper(std::string_view text) {
  return mapped(text, [](std::string& to, char32_t letter, std::size_t) { append_upper(to, letter, false); });
}

std::string lower(std::string_view text) {
  return mapped(text, [text](std::string& to, char32_t letter, std::size_t behind) {
    append_lower(to, letter, text, behind);
  });
}

std::string capitalized(std::string_view text) {
  return mapped(text, [text](std::string& to, char32_t letter, std::size_t behind) {
    if (to.empty())
      append_upper(to, letter, true);
    else
      append_lower(to, letter, text, behind);
  });
}

std::string titled(std::string_view text) {
  bool inside = false;
  return mapped(text, [&](std::string& to, char32_t letter, std::size_t behind) {
    if (inside)
      append_lower(to, letter, text, behind);
    else
      append_upper(to, letter, true);
    inside = has_case(letter);
  });
}

std::string case_swapped(std::string_view text) {
  return mapped(text, [text](std::string& to, char32_t letter, std::size_t behind) {
    if (is_upper(letter))
      append_lower(to, letter, text, behind);
    else if (is_lower(letter))
      append_upper(to, letter, false);
    else
      append_utf8(to, letter);
  });
}

std::string_view without_left(std::string_view text, bool (*drops)(char32_t)) {
  return cut_left(text, drops);
}
std::string_view without_right(std::string_view text, bool (*drops)(char32_t)) {
  return cut_right(text, drops);
}

std::string_view without_left(std::string_view text, std::string_view letters) {
  return cut_left(
      text, [set = letters_in(letters)](char32_t letter) { return std::ranges::binary_search(set, letter); });
}
std::string_view without_right(std::string_view text, std::string_view letters) {
  return cut_right(
      text, [set = letters_in(letters)](char32_t letter) { return std::ranges::binary_search(set, letter); });
}

std::size_t byte_of(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) next_code_point(text, at);
  return at;
}

// memmem needs linear time for every text (Crochemore and Perrin's two ways); string_view::find may need a
// product.
std::size_t find_in(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t count_in(std::string_view text, std::string_view part) {
  if (part.empty()) return count_code_points(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = find_in(text, part); at != std::string_view::npos;
       at = find_in(text, part, at + part.size()))
    ++count;
  return count;
}

namespace {

std::string spread(std::string_view text, std::string_view by, std::size_t most) {
  std::string result;
  std::size_t at = 0;
  for (; most > 0; --most) {
    result += by;
    if (at == text.size()) return result;
    const std::size_t begin = at;
    next_code_point(text, at);
    result.append(text, begin, at - begin);
  }
  return result.append(text.substr(at));
}

}  // namespace

std::string replaced(std::string_view text, std::string_view part, std::string_view by, std::size_t most) {
  if (part.empty()) return spread(text, by, most);
  std::string result;
  std::size_t begin = 0;
  for (std::size_t at = find_in(text, part); at != std::string_view::npos && most > 0; --most) {
    result.append(text, begin, at - begin).append(by);
    begin = at + part.size();
    at = find_in(text, part, begin);
  }
  return result.append(text.substr(begin));
}

}  // namespace moeloom::jinja
