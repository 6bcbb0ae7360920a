// Tokens and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/field.hpp"
#include "tokenizer/flat_map.hpp"

namespace moeloom::tokenizing {

/// For hashing short words: eight bytes at a step.
std::uint64_t hash_of(std::string_view text);

class Vocabulary {
 public:
  /// Throws ConfigError for an id far beyond their number: a table by id is kept.
  void add(std::string token, std::uint32_t id, const Field& where);

  std::optional<std::uint32_t> id_of(std::string_view token) const;
  /// None: no token has it.
  const std::string* token(std::uint32_t id) const;
  /// Largest id + 1.
  std::uint32_t size() const { return static_cast<std::uint32_t>(places_.size()); }
  /// Tokens that were added, which may be fewer.
  std::size_t count() const { return tokens_.size(); }
  /// Room for so many in all.
  void reserve(std::size_t tokens);

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::size_t slot_of(std::string_view token) const;
  void grow(std::size_t slots);

  struct Token {
    std::string text;
    std::uint32_t id = 0;
  };
  std::vector<Token> tokens_;
  std::vector<std::uint32_t> slots_;   // of a hash table: places in tokens_
  std::vector<std::uint32_t> places_;  // of each id in tokens_
  std::size_t most_ids_ = std::size_t{1} << 20;
};

}  // namespace moeloom::tokenizing
