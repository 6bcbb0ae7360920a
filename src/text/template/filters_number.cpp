// Filters of numbers, and default.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "letters.hpp"
#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

void require_defined(const Value& value) {
  if (const Undefined* undefined = value.as<Undefined>()) throw Failure(undefined_complaint(*undefined));
}

std::string plain(std::string_view text) {
  text = without_right(without_left(text, is_python_space), is_python_space);
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    // Python lets one underscore stand between digits.
    const bool between = text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_';
    if (!between) digits += text[i];
  }
  if (digits.starts_with('+')) digits.erase(0, 1);
  return digits;
}

std::optional<double> parsed_float(std::string_view text) {
  const std::string digits = plain(text);
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

std::optional<Integer> parsed_integer(std::string_view text, Integer base) {
  std::string digits = plain(text);
  const bool is_negative = digits.starts_with('-');
  if (is_negative) digits.erase(0, 1);
  const std::string lead = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "-";
  if (lower(digits).starts_with(lead)) digits.erase(0, 2);
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

std::optional<Integer> truncated(double number) {
  if (!(std::abs(number) < 1e38)) return std::nullopt;
  return static_cast<Integer>(number);
}

Value to_int(Meter&, const Value& value, const Arguments& arguments) {
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
    result = parsed_integer(*text, bound.integer(1, 10));
    const std::optional<double> number = result ? std::nullopt : parsed_float(*text);
    if (number) result = truncated(*number);
  }
  return result ? integer_value(*result) : otherwise;
}

Value to_float(Meter&, const Value& value, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  require_defined(value);
  double number = 0;
  if (value.to_number(number)) return number;
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
  const double unit = std::pow(10.0, -digits);
  return std::nearbyint(number / unit) * unit;
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
  if (method == "common" && !value.is<double>() && places >= 0) return value;
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
