// The normalizers of tokenizer.json: what happens to a text before it is split.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tokenizer/aligned_text.hpp"
#include "tokenizer/field.hpp"
#include "tokenizer/pattern.hpp"
#include "tokenizer/precompiled.hpp"

namespace moeloom::tokenizing {

struct StripSpace {
  bool left = true;
  bool right = true;
};
struct Prepend {
  std::string content;
};
struct Replace {
  Pattern pattern;
  std::string content;
};
struct Lowercase {};
struct StripAccents {};
struct Nmt {};
struct BytesToLetters {};

using NormalizerStep = std::variant<NormalForm, StripSpace, Prepend, Replace, Lowercase, StripAccents, Nmt,
                                    BytesToLetters, PrecompiledMap>;

class Normalizer {
 public:
  Normalizer() = default;
  /// Throws ConfigError for a type that is not implemented.
  explicit Normalizer(const Field& field);

  bool empty() const { return steps_.empty(); }
  /// The text after all steps; none where no step changes it.
  std::optional<AlignedText> apply(const Piece& piece, const Context& context) const;
  /// A content by itself.
  std::string apply(std::string_view text) const;

 private:
  void add(const Field& field);

  std::vector<NormalizerStep> steps_;
};

/// `text` with each match replaced.
AlignedText replaced(const Piece& piece, const Replace& replace, const Context& context);
/// {"pattern", "content"}. Throws ConfigError as Pattern does.
Replace replace_of(const Field& field);

}  // namespace moeloom::tokenizing
