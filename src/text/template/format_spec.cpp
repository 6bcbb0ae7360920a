#include "format_spec.hpp"

#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace moeloom::jinja {
namespace {

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

bool is_one_of(char c, std::string_view letters) {
  return c != 0 && letters.find(c) != std::string_view::npos;
}

Spec parse_spec(const std::string& text) {
  Spec spec;
  std::size_t at = 0;
  if (!text.empty()) {
    std::size_t behind = 0;
    next_code_point(text, behind);
    if (behind < text.size() && is_align(text[behind])) {
      spec.fill = text.substr(0, behind);
      at = behind;
    }
  }
  const bool is_filled = at > 0;
  const auto next_is = [&](std::string_view letters) {
    return at < text.size() && is_one_of(text[at], letters);
  };
  if (next_is("<>^=")) spec.align = text[at++];
  if (next_is("+- ")) spec.sign = text[at++];
  if (next_is("#")) spec.alternate = ++at != 0;
  if (next_is("0")) {
    ++at;
    if (!is_filled) spec.fill = "0";
    if (spec.align == 0) spec.align = '0';
  }
  if (next_is("123456789")) spec.width = format_number(text, at);
  if (next_is(",_")) spec.group = text[at++];
  if (next_is(",_")) throw Failure("Cannot specify both ',' and '_'.");
  if (next_is(".")) spec.precision = format_number(text, ++at);
  if (next_is("sdfFeEgGxXobcn%")) spec.type = text[at++];
  if (at != text.size()) throw Failure("Invalid format specifier '" + text + "'");
  return spec;
}

/// Digits, and what stands before them.
struct Number {
  std::string sign;
  std::string prefix;
  std::string digits;  // perhaps with a point, an exponent, a percent sign behind
};

std::string with_groups(const std::string& digits, char group, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) text += group;
    text += digits[i];
  }
  return text;
}

/// Where zeros fill the width, they are grouped too.
void group_digits(Number& number, const Spec& spec) {
  const std::size_t size = is_one_of(spec.type, "xXob") ? 4 : 3;
  const std::string_view kinds = is_one_of(spec.type, "xX") ? "0123456789abcdefABCDEF" : "0123456789";
  const std::size_t whole = std::min(number.digits.find_first_not_of(kinds), number.digits.size());
  if (whole == 0) return;
  std::string digits = number.digits.substr(0, whole);
  const std::string rest = number.digits.substr(whole);
  const std::size_t others = number.sign.size() + number.prefix.size() + rest.size();
  const bool fills = spec.fill == "0" && (spec.align == '=' || spec.align == '0') && spec.width > others;
  if (fills)
    for (const std::size_t width = spec.width - others; digits.size() + (digits.size() - 1) / size < width;)
      digits.insert(digits.begin(), '0');
  number.digits = with_groups(digits, spec.group, size) + rest;
}

std::string digits_in(Integer number, unsigned base, bool capital) {
  const std::string_view digits = capital ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string text;
  for (; number > 0; number /= base) text += digits[static_cast<std::size_t>(number % base)];
  if (text.empty()) text = "0";
  std::ranges::reverse(text);
  return text;
}

std::string printed_float(double number, const char* type, std::size_t precision, bool alternate) {
  const bool capital = is_one_of(type[0], "FEG");
  if (std::isnan(number)) return capital ? "NAN" : "nan";
  if (std::isinf(number)) return capital ? "INF" : "inf";
  std::string format = alternate ? "%#.*" : "%.*";
  format += type;
  std::vector<char> buffer(precision + 400);
  const int length =
      std::snprintf(buffer.data(), buffer.size(), format.c_str(), static_cast<int>(precision), number);
  return {buffer.data(), static_cast<std::size_t>(length)};
}

/// Of no type but a precision: CPython's "%g" that keeps ".0", so the exponent begins one digit sooner.
std::string short_digits(double number, std::size_t asked, bool alternate) {
  const std::size_t precision = std::max<std::size_t>(asked, 1);
  if (!std::isfinite(number)) return printed_float(number, "g", precision, alternate);
  std::string text = printed_float(number, "e", precision - 1, alternate);
  const std::size_t cut = text.find('e');
  const int exponent = std::stoi(text.substr(cut + 1));
  if (exponent >= -4 && exponent < static_cast<int>(precision) - 1) {
    text = printed_float(number, "g", precision, alternate);
    return text.find('.') == std::string::npos ? text + ".0" : text;
  }
  std::string digits = text.substr(0, cut);
  if (!alternate && digits.find('.') != std::string::npos) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
  }
  return digits + text.substr(cut);
}

std::string float_digits(double number, const Spec& spec) {
  if (spec.type == 0 && !spec.precision) {
    std::string text = float_text(number);
    if (spec.alternate && std::isfinite(number) && text.find('.') == std::string::npos)
      text.insert(std::min(text.find('e'), text.size()), ".");
    return text;
  }
  if (spec.type == 0) return short_digits(number, *spec.precision, spec.alternate);
  const std::size_t precision = spec.precision.value_or(6);
  if (spec.type == '%') return printed_float(number * 100, "f", precision, spec.alternate) + "%";
  const char type[] = {spec.type == 'n' ? 'g' : spec.type, 0};
  return printed_float(number, type, precision, spec.alternate);
}

std::string sign_of(bool negative, const Spec& spec) {
  if (negative) return "-";
  return is_one_of(spec.sign, "+ ") ? std::string(1, spec.sign) : std::string();
}

std::string letter_of(Integer number) {
  std::string letter;
  if (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000))
    throw Failure("%c arg not in range(0x110000)");
  append_utf8(letter, static_cast<char32_t>(number));
  return letter;
}

Number integer_parts(Integer number, const Spec& spec) {
  constexpr Integer kLeast = Integer{1} << 126;
  if (number < -kLeast) throw Failure("an integer is too large for a format");
  const unsigned base = is_one_of(spec.type, "xX") ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  const Integer size = number < 0 ? -number : number;
  Number parts{sign_of(number < 0, spec), {}, digits_in(size, base, spec.type == 'X')};
  if (spec.alternate && base != 10) parts.prefix = std::string("0") + spec.type;
  // text % values alone: the least number of digits.
  const std::size_t least = spec.precision.value_or(0);
  if (parts.digits.size() < least) parts.digits.insert(0, least - parts.digits.size(), '0');
  return parts;
}

/// What a specification may not say of an integer.
void check_integer(const Spec& spec) {
  const std::string type(1, spec.type == 0 ? 'd' : spec.type);
  if (spec.precision) throw Failure("Precision not allowed in integer format specifier");
  if (spec.group == ',' && is_one_of(spec.type, "xXob"))
    throw Failure("Cannot specify ',' with '" + type + "'.");
  if (spec.type != 'c') return;
  if (spec.sign != 0) throw Failure("Sign not allowed with integer format specifier 'c'");
  if (spec.alternate) throw Failure("Alternate form (#) not allowed with integer format specifier 'c'");
}

void check_text(const Spec& spec, char type) {
  if (type != 's') throw Failure(std::string("Unknown format code '") + type + "' for object of type 'str'");
  if (spec.sign != 0) throw Failure("Sign not allowed in string format specifier");
  if (spec.alternate) throw Failure("Alternate form (#) not allowed in string format specifier");
  if (spec.align == '=') throw Failure("'=' alignment not allowed in string format specifier");
}

bool is_of_floats(const Spec& spec) {
  return is_one_of(spec.type, "fFeEgG%");
}

}  // namespace

std::string padded(Meter& meter, const std::string& text, const Spec& spec, char usual, std::size_t before) {
  const std::size_t letters = count_code_points(text);
  if (letters >= spec.width) return text;
  const std::size_t missing = spec.width - letters;
  meter.make(missing * spec.fill.size());
  const char align = spec.align == 0 ? usual : spec.align;
  const std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const std::size_t kept = align == '=' ? before : 0;
  std::string result = text.substr(0, kept);
  for (std::size_t i = 0; i < left; ++i) result += spec.fill;
  result += text.substr(kept);
  for (std::size_t i = left; i < missing; ++i) result += spec.fill;
  return result;
}

std::string cut_to(const std::string& text, const std::optional<std::size_t>& letters) {
  if (!letters) return text;
  std::size_t at = 0;
  for (std::size_t i = 0; i < *letters && at < text.size(); ++i) next_code_point(text, at);
  return text.substr(0, at);
}

std::string formatted_number(Meter& meter, const Value& value, const Spec& spec) {
  Integer integer = 0;
  Number number;
  if (value.to_integer(integer) && !is_of_floats(spec)) {
    if (spec.type == 'c') return padded(meter, letter_of(integer), spec, '<');
    number = integer_parts(integer, spec);
  } else {
    double floating = 0;
    value.to_number(floating);
    if (spec.type != 0 && !is_of_floats(spec) && spec.type != 'n')
      throw Failure(std::string("Unknown format code '") + spec.type + "' for object of type 'float'");
    number = {sign_of(std::signbit(floating), spec), {}, float_digits(std::abs(floating), spec)};
  }
  if (spec.group != 0) group_digits(number, spec);
  const std::string before = number.sign + number.prefix;
  return padded(meter, before + number.digits, spec, '>', before.size());
}

std::string formatted(Meter& meter, const Value& value, const std::string& specification) {
  if (specification.empty()) return str(meter, value);
  Spec spec = parse_spec(specification);
  double number = 0;
  Integer integer = 0;
  const bool is_number = value.text() == nullptr && value.to_number(number);
  if (!is_number && value.text() == nullptr && !value.is_undefined())
    throw Failure(std::string("unsupported format string passed to ") + type_name(value) + ".__format__");
  const char type = spec.type == 0 && !is_number ? 's' : spec.type;
  if (spec.group != 0 && is_one_of(type, "scn"))
    throw Failure(std::string("Cannot specify '") + spec.group + "' with '" + type + "'.");
  if (is_number) {
    if (type == 's')
      throw Failure(std::string("Unknown format code 's' for object of type '") + type_name(value) + "'");
    if (value.to_integer(integer) && !is_of_floats(spec)) check_integer(spec);
    if (spec.align == '0') spec.align = '=';
    return formatted_number(meter, value, spec);
  }
  check_text(spec, type);
  if (spec.align == '0') spec.align = '<';
  return padded(meter, cut_to(str(meter, value), spec.precision), spec, '<');
}

}  // namespace moeloom::jinja
