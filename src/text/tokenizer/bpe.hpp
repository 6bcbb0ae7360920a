// Byte pair encoding: of all neighbours that may merge, those of the lowest rank do, the leftmost first.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/field.hpp"
#include "tokenizer/flat_map.hpp"
#include "tokenizer/vocabulary.hpp"

namespace moeloom::tokenizing {

/// An id and the bytes of the piece that it stands for.
struct Token {
  std::uint32_t id = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// What one thread needs to merge, kept so that a word allocates nothing.
struct BpeSpace {
  struct Symbol {
    std::uint32_t id = 0;
    std::uint32_t bytes = 0;
    std::uint32_t before = 0;
    std::uint32_t after = 0;
  };
  std::vector<Symbol> symbols;
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint64_t> heap;
};

class Bpe {
 public:
  /// Pieces are UTF-8, or the bytes that the letters of the vocabulary stand for.
  enum class Unit { kCharacter, kByte };

  /// Throws ConfigError for merges of tokens that are not there, and for dropout.
  Bpe(const Field& model, Unit unit);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// Whether a piece is the same tokens as its words, each from a "▁" behind another character to the next:
  /// no merge reaches across.
  bool splits_at_words() const { return splits_at_words_; }

  /// Appends the tokens of one piece. In time n log n.
  void encode(std::string_view piece, BpeSpace& space, std::vector<Token>& tokens) const;

 private:
  struct Merge {
    std::uint32_t rank = 0;
    std::uint32_t id = 0;
  };

  void add_merges(const Field& merges);
  void add_merge(std::string_view first, std::string_view second, std::uint32_t rank, const Field& merges);
  const Merge* merge_of(std::uint32_t first, std::uint32_t second) const {
    return merges_.find(std::uint64_t{first} << 32 | second);
  }

  std::optional<std::uint32_t> whole(std::string_view piece) const;
  std::optional<std::uint32_t> id_of_character(std::string_view character, bool first, bool last) const;
  void add_symbols(std::string_view piece, std::vector<BpeSpace::Symbol>& symbols) const;
  bool add_byte_tokens(std::string_view character, std::vector<BpeSpace::Symbol>& symbols) const;
  void merge_few(BpeSpace& space) const;
  void merge_many(BpeSpace& space) const;

  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  Unit unit_;
  Vocabulary vocabulary_;
  FlatMap<Merge> merges_;
  std::array<std::uint32_t, 256> byte_ids_{};      // of single bytes; of ASCII where units are characters
  std::array<std::uint32_t, 256> fallback_ids_{};  // of <0x00> ... <0xFF>
  std::optional<std::string> unknown_;
  std::string prefix_, suffix_;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  bool splits_at_words_ = false;
};

/// "<0x0A>".
std::string byte_token(std::uint8_t byte);

}  // namespace moeloom::tokenizing
