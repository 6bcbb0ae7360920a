// Filters of numbers, and default.
#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "letters.hpp"
#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

void require_defined(const Value& value) {
  if (const Undefined* undefined = value.as<Undefined>()) throw Failure(undefined_complaint(*undefined));
}

/// Without white space around it; digits of other writing systems as 0 to 9.
std::string plain(std::string_view text) {
  text = without_right(without_left(text, is_python_space), is_python_space);
  std::string digits;
  for (std::size_t at = 0, begin = 0; at < text.size(); begin = at) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      digits += text[at++];
      continue;
    }
    const char32_t letter = next_code_point(text, at);
    if (is_decimal(letter))
      digits += static_cast<char>('0' + decimal_value(letter));
    else
      digits += text.substr(begin, at - begin);
  }
  return digits;
}

/// Python lets one underscore stand between digits. The others stay, and make it no number.
template <typename IsDigit>
std::string without_underscores(std::string text, const IsDigit& is_digit) {
  if (text.find('_') == std::string::npos) return text;
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool joins =
        text[i] == '_' && i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
    if (!joins) digits += text[i];
  }
  return digits;
}

std::optional<double> parsed_float(std::string_view text) {
  std::string digits = without_underscores(plain(text), [](char c) { return c >= '0' && c <= '9'; });
  if (digits.starts_with("+-") || digits.find('(') != std::string::npos) return std::nullopt;
  if (digits.starts_with('+')) digits.erase(0, 1);
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (end != digits.data() + digits.size() || digits.empty()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(digits.c_str(), nullptr);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  return c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

/// The base that a prefix of `digits` names, which is then cut off; 0: none.
Integer named_base(std::string& digits) {
  const char letter = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : ' ';
  const Integer base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (base != 0) digits.erase(0, digits[2] == '_' ? 3 : 2);
  return base;
}

std::optional<Integer> parsed_integer(std::string_view text, Integer base) {
  if (base < 0 || base == 1 || base > 36) return std::nullopt;
  std::string digits = plain(text);
  const bool is_negative = digits.starts_with('-');
  if (is_negative || digits.starts_with('+')) digits.erase(0, 1);
  std::string rest = digits;
  const Integer named = named_base(rest);
  if (named != 0 && (base == 0 || base == named)) {
    digits = std::move(rest);
    base = named;
  } else if (base == 0) {
    base = 10;
    if (digits.starts_with('0') && digits.find_first_not_of("0_") != std::string::npos) return std::nullopt;
  }
  digits = without_underscores(digits, [base](char c) { return digit_of(c) < base; });
  Integer number = 0;
  for (const char c : digits) {
    if (digit_of(c) >= base) return std::nullopt;
    if (__builtin_mul_overflow(number, base, &number) ||
        __builtin_add_overflow(number, Integer{digit_of(c)}, &number))
      throw Failure("an integer does not fit into 128 bits");
  }
  if (digits.empty()) return std::nullopt;
  return is_negative ? -number : number;
}

/// None for NaN, which Python's int() does not take.
std::optional<Integer> truncated(double number) {
  if (std::isnan(number)) return std::nullopt;
  if (std::isinf(number)) throw Failure("cannot convert float infinity to integer");
  if (std::abs(number) >= 0x1p126 * 2) throw Failure("an integer does not fit into 128 bits");
  return static_cast<Integer>(number);
}

Value to_int(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  require_defined(value);
  const Value otherwise = bound.given(0) ? bound[0] : integer_value(0);
  Integer integer = 0;
  std::optional<Integer> result;
  if (value.to_integer(integer))
    result = integer;
  else if (const double* number = value.as<double>())
    result = truncated(*number);
  else if (const std::string* text = value.text()) {
    scan_letters(meter, *text);
    result = parsed_integer(*text, bound.integer(1, 10));
    const std::optional<double> number = result ? std::nullopt : parsed_float(*text);
    if (number && std::isfinite(*number)) result = truncated(*number);
  }
  return result ? integer_value(*result) : otherwise;
}

Value to_float(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  require_defined(value);
  double number = 0;
  if (value.to_number(number)) return number;
  if (value.text() != nullptr) scan_letters(meter, *value.text());
  const std::optional<double> parsed = value.text() == nullptr ? std::nullopt : parsed_float(*value.text());
  if (parsed) return *parsed;
  return bound.given(0) ? bound[0] : Value(0.0);
}

Value absolute(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("abs", arguments, {});
  require_defined(value);
  double number = 0;
  if (!value.to_number(number))
    throw Failure(std::string("bad operand type for abs(): '") + type_name(value) + "'");
  if (number < 0) return negative(value);
  return operate(meter, Operator::kAdd, value, integer_value(0));  // a boolean becomes an integer
}

/// As Python's round: to the nearest number of so many digits of what the double is, ties to even.
double rounded(double number, int digits) {
  char buffer[512];
  if (digits >= 0) {
    std::snprintf(buffer, sizeof buffer, "%.*f", std::min(digits, 40), number);
    return std::strtod(buffer, nullptr);
  }
  // The digits that are left, behind the first.
  std::snprintf(buffer, sizeof buffer, "%.17e", number);
  const int left = std::atoi(std::strchr(buffer, 'e') + 1) + digits;
  if (left >= 0) {
    std::snprintf(buffer, sizeof buffer, "%.*e", std::min(left, 400), number);
    return std::strtod(buffer, nullptr);
  }
  const double unit = std::pow(10.0, -digits);
  return std::copysign(std::abs(number) > unit / 2 ? unit : 0.0, number);
}

/// An integer with zeros for its last digits, ties to even.
Integer rounded(Integer number, int zeros) {
  constexpr int kMostZeros = 38;  // 10^39 does not fit, and no half of it does
  if (zeros > kMostZeros) return 0;
  Integer unit = 1;
  for (int i = 0; i < zeros; ++i) unit *= 10;
  const Integer rest = number % unit;
  const Integer below = number - rest;
  const Integer size = rest < 0 ? -rest : rest;
  const bool is_odd = below / unit % 2 != 0;
  if (size < unit - size || (size == unit - size && !is_odd)) return below;
  Integer result = 0;
  if (__builtin_add_overflow(below, rest < 0 ? -unit : unit, &result))
    throw Failure("an integer does not fit into 128 bits");
  return result;
}

Value round(Meter&, const Value& value, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const std::string method = bound.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor")
    throw Failure("method must be common, ceil or floor");
  require_defined(value);
  double number = 0;
  if (!value.to_number(number))
    throw Failure(std::string("type ") + type_name(value) + " doesn't define __round__ method");
  const Integer digits = bound.integer(0, 0);
  if (digits > 300 || digits < -300) throw Failure("round() takes a precision of at most 300");
  const auto places = static_cast<int>(digits);
  if (Integer integer = 0; method == "common" && value.to_integer(integer))
    return integer_value(places >= 0 ? integer : rounded(integer, -places));
  if (!std::isfinite(number)) return number;
  if (method == "common") return rounded(number, places);
  const double unit = std::pow(10.0, places);
  return (method == "ceil" ? std::ceil(number * unit) : std::floor(number * unit)) / unit;
}

Value otherwise(Meter&, const Value& value, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  if (!value.is_undefined() && (truth(value) || !bound.flag(1, false))) return value;
  return bound.given(0) ? bound[0] : text_value("");
}

constexpr Filter kNumberFilters[] = {
    {"int", to_int},  {"float", to_float},    {"abs", absolute},
    {"round", round}, {"default", otherwise}, {"d", otherwise},
};

}  // namespace

std::span<const Filter> number_filters() {
  return kNumberFilters;
}

}  // namespace moeloom::jinja
