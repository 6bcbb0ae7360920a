// The decoders of tokenizer.json: the strings of tokens back into text.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tokenizer/field.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/pre_tokenizer.hpp"

namespace moeloom::tokenizing {

struct LettersToBytes {};
struct Fuse {};
struct ByteFallback {};
struct StripCharacter {
  char32_t character = U' ';
  std::size_t start = 0;
  std::size_t stop = 0;
};

using DecoderStep = std::variant<LettersToBytes, Metaspace, Replace, Fuse, StripCharacter, ByteFallback>;

class TokenDecoder {
 public:
  TokenDecoder() = default;
  /// Throws ConfigError for a type that is not implemented.
  explicit TokenDecoder(const Field& field);

  /// Whether a space stands between strings.
  bool is_none() const { return is_none_; }
  /// Whether it is the byte-level decoder alone: a token's bytes do not depend on its neighbours.
  bool is_byte_level() const;

  /// In place: the strings after all steps.
  void apply(std::vector<std::string>& strings) const;

 private:
  void add(const Field& field);

  bool is_none_ = true;  // a sequence may have no step either
  std::vector<DecoderStep> steps_;
};

/// A token's bytes for the byte-level decoder: its letters', else its own.
std::string byte_level_bytes(const std::string& token);

}  // namespace moeloom::tokenizing
