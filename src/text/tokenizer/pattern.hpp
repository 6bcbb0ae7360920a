// {"String": ...} or {"Regex": ...}: what Split and Replace look for.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "tokenizer/field.hpp"
#include "tokenizer/regex.hpp"

namespace moeloom::tokenizing {

class Pattern {
 public:
  /// Throws ConfigError for a field that is neither, and for a regular expression that cannot be compiled.
  explicit Pattern(const Field& field);
  explicit Pattern(Regex regex) : sought_(std::move(regex)) {}
  explicit Pattern(std::string literal) : sought_(std::move(literal)) {}

  const std::variant<std::string, Regex>& sought() const { return sought_; }

 private:
  std::variant<std::string, Regex> sought_;
};

/// A pattern's matches in a text, from left to right. A match may be empty, but not where the one before
/// ended.
class Matches {
 public:
  Matches(const Pattern& pattern, std::string_view text, const RegexSpace& space)
      : pattern_(&pattern), text_(text), space_(&space) {}

  /// Throws ConfigError as Regex::search does.
  std::optional<ByteRange> next();

 private:
  std::optional<ByteRange> found_from(std::size_t from) const;

  const Pattern* pattern_;
  std::string_view text_;
  const RegexSpace* space_;
  std::size_t from_ = 0;
  std::optional<std::size_t> last_end_;
};

}  // namespace moeloom::tokenizing
