// SentencePiece's compiled table of replacements ("precompiled_charsmap"): a double array of keys, then the
// replacements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/aligned_text.hpp"
#include "tokenizer/field.hpp"

namespace moeloom::tokenizing {

class PrecompiledMap {
 public:
  /// The field "precompiled_charsmap", in base64. Throws ConfigError where its sizes cannot be.
  explicit PrecompiledMap(const Field& field);

  /// The text with each character cluster, or else each character, replaced where the table has it.
  AlignedText apply(const Piece& piece, const Context& context) const;

 private:
  /// Of the shortest key that is a prefix of `text`.
  std::optional<std::string_view> replacement(std::string_view text) const;
  void add_each(std::string_view text, std::vector<Change>& changes) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace moeloom::tokenizing
