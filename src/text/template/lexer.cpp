#include "lexer.hpp"

#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "letters.hpp"

namespace moeloom::jinja {
namespace {

constexpr std::string_view kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                       "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

/// \r\n and \r as \n, and without one newline at the end.
std::string with_plain_lines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t at = 0; at < source.size(); ++at) {
    text += source[at] == '\r' ? '\n' : source[at];
    if (source[at] == '\r' && at + 1 < source.size() && source[at + 1] == '\n') ++at;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_number(char c) {
  return c >= '0' && c <= '9';
}

bool is_word(char32_t letter) {
  return letter == '_' || is_letter(letter) || is_numeric(letter);
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> tokens() {
    while (at_ < source_.size()) root();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool rest_begins(std::string_view text) const { return rest().starts_with(text); }

  [[noreturn]] void fail(const std::string& text) const { throw SyntaxError{text, line_}; }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  /// Lines are counted where the lexer goes by.
  void skip(std::size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }
  void skip_space() { skip(rest().size() - without_left(rest(), is_python_space).size()); }
  void skip_newline() {
    if (rest_begins("\n")) skip(1);
  }

  /// Adds the text before what begins at `end` with a sign behind its two characters.
  void add_data(std::size_t end, bool strips_line, char sign) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = without_right(text, is_python_space);
    } else if (sign != '+' && strips_line) {
      const std::size_t line = text.rfind('\n') + 1;
      const bool whole_line = line > 0 || at_line_start_;
      if (whole_line && without_left(text.substr(line), is_python_space).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenKind::kData, std::string(text));
    skip(end - at_);
  }

  char sign_at(std::size_t place) const {
    if (place >= source_.size() || (source_[place] != '-' && source_[place] != '+')) return 0;
    return source_[place];
  }

  void root() {
    std::size_t begin = at_;
    for (begin = source_.find('{', at_); begin != std::string::npos; begin = source_.find('{', begin + 1))
      if (begin + 1 < source_.size() &&
          std::string_view("{%#").find(source_[begin + 1]) != std::string_view::npos)
        break;
    if (begin == std::string::npos) return add_data(source_.size(), false, '+');
    const char kind = source_[begin + 1];
    const char sign = sign_at(begin + 2);
    add_data(begin, kind != '{', sign);
    at_line_start_ = false;
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    add(kind == '{' ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, "");
    skip(sign == 0 ? 2 : 3);
    inside(kind == '{');
  }

  /// Behind a tag that may end with a sign: "-" takes white space, none one newline.
  void end_tag(char sign) {
    if (sign == '-')
      skip_space();
    else if (sign == 0)
      skip_newline();
    at_line_start_ = source_[at_ - 1] == '\n';
  }

  void comment() {
    const std::size_t begin = at_ + (sign_at(at_ + 2) == 0 ? 2 : 3);
    const std::size_t end = source_.find("#}", begin);
    if (end == std::string::npos) fail("Missing end of comment tag");
    const char sign = end > begin ? sign_at(end - 1) : 0;
    skip(end + 2 - at_);
    end_tag(sign);
  }

  /// The place behind `{% name %}` where it stands at `place`; npos: another tag. `sign`: before its end.
  std::size_t behind_tag(std::size_t place, std::string_view name, char& sign) const {
    std::size_t at = place + 2 + (sign_at(place + 2) == 0 ? 0 : 1);
    const auto space = [&] {
      at = source_.size() - without_left(std::string_view(source_).substr(at), is_python_space).size();
    };
    space();
    if (!std::string_view(source_).substr(at).starts_with(name)) return std::string::npos;
    at += name.size();
    space();
    sign = sign_at(at);
    if (sign != 0) ++at;
    return std::string_view(source_).substr(at).starts_with("%}") ? at + 2 : std::string::npos;
  }

  bool raw() {
    char sign = 0;
    const std::size_t begin = behind_tag(at_, "raw", sign);
    if (begin == std::string::npos || sign == '+') return false;
    skip(begin - at_);
    if (sign == '-') skip_space();
    for (std::size_t place = source_.find("{%", at_); place != std::string::npos;
         place = source_.find("{%", place + 2)) {
      const std::size_t end = behind_tag(place, "endraw", sign);
      if (end == std::string::npos) continue;
      at_line_start_ = source_[at_ - 1] == '\n';
      add_data(place, true, sign_at(place + 2));
      skip(end - at_);
      end_tag(sign);
      return true;
    }
    fail("Missing end of raw directive");
  }

  /// Tokens of a tag up to its end.
  void inside(bool prints) {
    const std::string_view end = prints ? "}}" : "%}";
    std::string open;  // the brackets that have to be closed
    for (skip_space(); at_ < source_.size(); skip_space()) {
      const char sign = prints && source_[at_] == '+' ? 0 : sign_at(at_);
      if (open.empty() && rest().substr(sign == 0 ? 0 : 1).starts_with(end)) {
        add(prints ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, "");
        skip(sign == 0 ? 2 : 3);
        if (prints && sign != '-')
          at_line_start_ = false;
        else
          end_tag(sign);
        return;
      }
      token(open);
    }
    fail("unexpected end of template");
  }

  void token(std::string& open) {
    if (is_number(source_[at_])) return number();
    if (source_[at_] == '\'' || source_[at_] == '"') return text();
    std::size_t end = at_;
    for (std::size_t next = at_; end < source_.size(); end = next)
      if (!is_word(next_code_point(source_, next))) break;
    if (end > at_) return word(end);
    for (const std::string_view sign : kSigns)
      if (rest_begins(sign)) {
        balance(open, sign);
        add(TokenKind::kSign, std::string(sign));
        return skip(sign.size());
      }
    fail("unexpected char '" + source_.substr(at_, byte_of(rest(), 1)) + "'");
  }

  void word(std::size_t end) {
    const std::string name = source_.substr(at_, end - at_);
    if (!is_identifier(name)) fail("Invalid character in identifier");
    add(TokenKind::kName, name);
    skip(end - at_);
  }

  void balance(std::string& open, std::string_view sign) {
    constexpr std::string_view kOpening = "([{";
    constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(sign) != std::string_view::npos) open += sign;
    const std::size_t closes = kClosing.find(sign);
    if (closes == std::string_view::npos) return;
    if (open.empty()) fail("unexpected '" + std::string(sign) + "'");
    if (open.back() != kOpening[closes])
      fail("unexpected '" + std::string(sign) + "', expected another bracket");
    open.pop_back();
  }

  /// Digits with single underscores between them, from `at`; npos: none begin there.
  template <typename IsDigit>
  std::size_t digits_end(std::size_t at, const IsDigit& is_digit) const {
    if (at >= source_.size() || !is_digit(source_[at])) return std::string::npos;
    for (++at; at < source_.size(); ++at) {
      const bool joins = source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1]);
      if (!joins && !is_digit(source_[at])) break;
    }
    return at;
  }

  std::size_t exponent_end(std::size_t at) const {
    if (at >= source_.size() || (source_[at] != 'e' && source_[at] != 'E')) return std::string::npos;
    return digits_end(at + 1 + (sign_at(at + 1) == 0 ? 0 : 1), is_number);
  }

  void number() {
    const bool behind_dot = at_ > 0 && source_[at_ - 1] == '.';
    const std::size_t whole = digits_end(at_, is_number);
    std::size_t end = whole;
    if (!behind_dot) {
      if (whole < source_.size() && source_[whole] == '.') {
        const std::size_t part = digits_end(whole + 1, is_number);
        if (part != std::string::npos) end = part;
      }
      const std::size_t exponent = exponent_end(end);
      if (exponent != std::string::npos) end = exponent;
    }
    if (end != whole) return add_number(TokenKind::kFloat, end);
    add_number(TokenKind::kInteger, integer_end(whole));
  }

  std::size_t integer_end(std::size_t whole) const {
    if (source_[at_] != '0' || at_ + 1 >= source_.size()) return whole;
    const char base = static_cast<char>(source_[at_ + 1] | 0x20);
    const auto is_digit = [base](char c) {
      if (base == 'b') return c == '0' || c == '1';
      if (base == 'o') return c >= '0' && c <= '7';
      return is_number(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    };
    if (base == 'b' || base == 'o' || base == 'x') {
      const std::size_t from = at_ + 2 + (at_ + 2 < source_.size() && source_[at_ + 2] == '_' ? 1 : 0);
      const std::size_t end = digits_end(from, is_digit);
      return end == std::string::npos ? whole : end;
    }
    return digits_end(at_, [](char c) { return c == '0'; });
  }

  void add_number(TokenKind kind, std::size_t end) {
    std::string digits = source_.substr(at_, end - at_);
    std::erase(digits, '_');
    add(kind, std::move(digits));
    skip(end - at_);
  }

  void text() {
    const char quote = source_[at_];
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(std::string("unexpected char '") + quote + "': a text has no end");
    add(TokenKind::kText, without_escapes(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    skip(end + 1 - at_);
  }

  /// Python's escapes. One that it does not know stays as it is.
  std::string without_escapes(std::string_view text) const {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] != '\\') {
        result += text[at++];
        continue;
      }
      constexpr std::string_view kNames = "\\'\"abfnrtv\n";
      constexpr std::string_view kLetters = "\\'\"\a\b\f\n\r\t\v";
      const char name = text[at + 1];  // a text does not end with an open escape
      at += 2;
      const std::size_t known = kNames.find(name);
      if (known < kLetters.size())
        result += kLetters[known];
      else if (name == 'x')
        append_code(result, text, at, 2);
      else if (name == 'u')
        append_code(result, text, at, 4);
      else if (name == 'U')
        append_code(result, text, at, 8);
      else if (name >= '0' && name <= '7')
        append_octal(result, text, --at);
      else if (name == 'N')
        fail("an escape \\N{...} is not implemented");
      else if (static_cast<unsigned char>(name) >= 0x80)
        append_shown(result, text, --at);
      else if (name != '\n')
        (result += '\\') += name;
    }
    return result;
  }

  /// Jinja escapes what is outside of ASCII first; the backslash before that then escapes the escape.
  static void append_shown(std::string& result, std::string_view text, std::size_t& at) {
    const auto code = static_cast<std::uint32_t>(next_code_point(text, at));
    std::array<char, 16> shown = {};
    std::snprintf(shown.data(), shown.size(),
                  code < 0x100     ? "\\x%02x"
                  : code < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                  code);
    result += shown.data();
  }

  void append_code(std::string& result, std::string_view text, std::size_t& at, std::size_t digits) const {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::uint32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at) {
      const std::size_t digit =
          at < text.size() ? kHex.find(static_cast<char>(is_number(text[at]) ? text[at] : text[at] | 0x20))
                           : std::string_view::npos;
      if (digit == std::string_view::npos) fail("an escape of a text has too few digits");
      code = code << 4 | static_cast<std::uint32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("an escape of a text is no code point");
    append_utf8(result, code);
  }

  static void append_octal(std::string& result, std::string_view text, std::size_t& at) {
    std::uint32_t code = 0;
    for (int i = 0; i < 3 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i, ++at)
      code = code << 3 | static_cast<std::uint32_t>(text[at] - '0');
    append_utf8(result, code);
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
  return Lexer(with_plain_lines(source)).tokens();
}

}  // namespace moeloom::jinja
