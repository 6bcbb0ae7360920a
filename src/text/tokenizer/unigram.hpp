// Unigram language model: the segmentation with the greatest sum of scores.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.hpp"
#include "tokenizer/byte_trie.hpp"
#include "tokenizer/field.hpp"
#include "tokenizer/vocabulary.hpp"

namespace moeloom::tokenizing {

struct UnigramSpace {
  struct Best {  // of the segmentations that end at a byte
    double score = 0;
    std::uint32_t begin = 0;  // of its last piece
    std::uint32_t id = 0;
    bool reached = false;
  };
  std::vector<Best> best;
  std::vector<std::uint32_t> ends;  // of the chosen pieces, the last first
};

class Unigram {
 public:
  /// Throws ConfigError for a vocabulary that is no list of [piece, score] and for an unk_id behind its end.
  /// byte_fallback without a piece for each byte is none, as in the reference implementation.
  explicit Unigram(const Field& model);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// Appends the tokens of one piece. Throws ConfigError for a character without a piece if there is no
  /// unk_id.
  void encode(std::string_view piece, UnigramSpace& space, std::vector<Token>& tokens) const;

 private:
  void find_best(std::string_view piece, std::vector<UnigramSpace::Best>& best) const;
  std::uint32_t unknown() const;
  void add_token(std::string_view piece, std::uint32_t begin, std::uint32_t end,
                 std::vector<Token>& tokens) const;

  Vocabulary vocabulary_;
  ByteTrie pieces_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::optional<std::uint32_t> unknown_;
  std::vector<std::uint32_t> fallback_ids_;  // of <0x00> ... <0xFF>, or empty
};

}  // namespace moeloom::tokenizing
