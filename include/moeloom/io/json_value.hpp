// Any JSON value as a tree that keeps the order of members. A value; no collective.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moeloom {

/// null, a boolean, an integer (of 64 bits with its sign), a number, a text (UTF-8), an array, an object (in
/// the file's order), or an integer from 2^63 to 2^64 - 1.
struct JsonValue {
  struct Member;  // no pair: clang would ask for a whole one before there is a JsonValue
  using Array = std::vector<JsonValue>;
  using Object = std::vector<Member>;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object, std::uint64_t> value;

  /// What it is: a pointer into it, or null where it is something else.
  bool is_null() const { return std::holds_alternative<std::monostate>(value); }
  const bool* boolean() const { return std::get_if<bool>(&value); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&value); }
  /// From 2^63 to 2^64 - 1; those below are `integer`.
  const std::uint64_t* large_integer() const { return std::get_if<std::uint64_t>(&value); }
  const double* number() const { return std::get_if<double>(&value); }
  const std::string* text() const { return std::get_if<std::string>(&value); }
  const Array* array() const { return std::get_if<Array>(&value); }
  const Object* object() const { return std::get_if<Object>(&value); }

  /// The member of that name; none where this is no object or has no such member. Looks at one after the
  /// other.
  const JsonValue* find(std::string_view key) const;
};

struct JsonValue::Member {
  std::string name;
  JsonValue value;
};

/// Throws IoError, which names origin, line and column: not JSON (NaN and 1e400 are not), a name given twice
/// in one object, nested deeper than 64 levels. Integers beyond 64 bits become numbers.
JsonValue parse_json_value(std::string_view text, const std::string& origin);

/// A value in a few words, for messages: `"32"`, `7`, `null`, `an array of 3`, `an object`.
std::string described(const JsonValue& value);

}  // namespace moeloom
