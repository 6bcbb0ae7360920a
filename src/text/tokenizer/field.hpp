// A value of tokenizer.json and where it stands there, so that a refusal names it.
#pragma once

#include "moeloom/io/json_value.hpp"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom::tokenizing {

class Field {
 public:
  Field(const JsonValue& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const JsonValue& value() const { return *value_; }
  /// "tokenizer.json: model.vocab".
  const std::string& path() const { return path_; }

  /// Throws ConfigError where it is missing.
  Field member(std::string_view key) const;
  /// None where it is missing or null.
  std::optional<Field> optional(std::string_view key) const;
  /// Of an array, each with its place. The values that follow throw ConfigError where it is another kind.
  std::vector<Field> items() const;

  const JsonValue::Array& array() const;
  const JsonValue::Object& object() const;
  const std::string& text() const;
  bool boolean() const;
  double number() const;
  /// In [0, 2^32 - 1).
  std::uint32_t id() const;
  /// Its one code point.
  char32_t character() const;

  bool boolean_or(std::string_view key, bool otherwise) const;
  /// Empty where it is missing or null.
  std::string text_or_empty(std::string_view key) const;
  /// The place of member `key` among `names`; throws ConfigError that lists them. `otherwise`: where it is
  /// missing or null.
  std::size_t choice(std::string_view key, std::initializer_list<std::string_view> names,
                     std::optional<std::size_t> otherwise = std::nullopt) const;

  /// Throws ConfigError: "<path>: expected <what>, found <value>".
  [[noreturn]] void refuse(const std::string& expected) const;

 private:
  const JsonValue* value_;
  std::string path_;
};

}  // namespace moeloom::tokenizing
