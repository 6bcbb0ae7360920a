#include "tokenizer/field.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <limits>

namespace moeloom::tokenizing {

void Field::refuse(const std::string& expected) const {
  throw ConfigError({path_ + ": expected " + expected + ", found " + described(*value_)});
}

Field Field::member(std::string_view key) const {
  const JsonValue* found = value_->find(key);
  if (found == nullptr) throw ConfigError({path_ + ": expected a member \"" + std::string(key) + "\""});
  return {*found, path_ + "." + std::string(key)};
}

std::optional<Field> Field::optional(std::string_view key) const {
  const JsonValue* found = value_->find(key);
  if (found == nullptr || found->is_null()) return std::nullopt;
  return Field(*found, path_ + "." + std::string(key));
}

std::vector<Field> Field::items() const {
  std::vector<Field> fields;
  for (const JsonValue& each : array())
    fields.emplace_back(each, path_ + "[" + std::to_string(fields.size()) + "]");
  return fields;
}

const JsonValue::Array& Field::array() const {
  if (value_->array() == nullptr) refuse("a list");
  return *value_->array();
}

const JsonValue::Object& Field::object() const {
  if (value_->object() == nullptr) refuse("an object");
  return *value_->object();
}

const std::string& Field::text() const {
  if (value_->text() == nullptr) refuse("a text");
  return *value_->text();
}

bool Field::boolean() const {
  if (value_->boolean() == nullptr) refuse("true or false");
  return *value_->boolean();
}

double Field::number() const {
  if (const double* number = value_->number()) return *number;
  if (const std::int64_t* integer = value_->integer()) return static_cast<double>(*integer);
  refuse("a number");
}

std::uint32_t Field::id() const {
  const std::int64_t* integer = value_->integer();
  if (integer == nullptr || *integer < 0 || *integer >= std::numeric_limits<std::uint32_t>::max())
    refuse("an id below 2^32 - 1");
  return static_cast<std::uint32_t>(*integer);
}

char32_t Field::character() const {
  std::size_t end = 0;
  const std::string& characters = text();
  if (characters.empty()) refuse("one character");
  const char32_t first = next_code_point(characters, end);
  if (end != characters.size()) refuse("one character");
  return first;
}

bool Field::boolean_or(std::string_view key, bool otherwise) const {
  const auto field = optional(key);
  return field ? field->boolean() : otherwise;
}

std::string Field::text_or_empty(std::string_view key) const {
  const auto field = optional(key);
  return field ? field->text() : std::string();
}

std::size_t Field::choice(std::string_view key, std::initializer_list<std::string_view> names,
                          std::optional<std::size_t> otherwise) const {
  const auto field = optional(key);
  if (!field && otherwise) return *otherwise;
  const Field given = field ? *field : member(key);
  const auto found = std::ranges::find(names, std::string_view(given.text()));
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string known;
  for (const std::string_view name : names) known += (known.empty() ? "" : ", ") + std::string(name);
  given.refuse("what is implemented here (" + known + ")");
}

}  // namespace moeloom::tokenizing
