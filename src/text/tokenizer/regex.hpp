// Regular expressions by Oniguruma, in its own default syntax on UTF-8: the reference implementation's
// default engine.
#pragma once

#include "moeloom/text/utf8.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct re_pattern_buffer;  // Oniguruma's OnigRegexType
struct re_registers;       // OnigRegion
struct OnigMatchParamStruct;

namespace moeloom::tokenizing {

/// What one thread's searches need; made once, because a search with room for its answer allocates nothing.
class RegexSpace {
 public:
  RegexSpace();
  re_registers* region() const { return region_.get(); }
  OnigMatchParamStruct* limits() const { return limits_.get(); }

 private:
  struct Free {
    void operator()(re_registers* region) const;
    void operator()(OnigMatchParamStruct* limits) const;
  };
  std::unique_ptr<re_registers, Free> region_;
  std::unique_ptr<OnigMatchParamStruct, Free> limits_;
};

class Regex {
 public:
  /// Throws ConfigError, which names `origin`, the pattern and the engine's reason.
  Regex(std::string pattern, const std::string& origin);

  /// The first match that begins at `from` or later; `text` is well-formed UTF-8. Throws ConfigError where
  /// the pattern goes back and forth for longer than a text of this length justifies.
  std::optional<ByteRange> search(std::string_view text, std::size_t from, const RegexSpace& space) const;

 private:
  std::string pattern_;
  std::shared_ptr<re_pattern_buffer> compiled_;  // read only once it is made
};

/// Whether it belongs to a word for a regular expression's \w: Alphabetic, a mark, Nd, Pc, or a joiner.
bool is_word_character(char32_t code_point);

}  // namespace moeloom::tokenizing
