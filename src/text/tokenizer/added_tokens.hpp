// Tokens that are cut out of a text whole, before (or after) it is normalized.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/byte_trie.hpp"
#include "tokenizer/field.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/vocabulary.hpp"

namespace moeloom::tokenizing {

struct AddedToken {
  std::uint32_t id = 0;
  std::string content;
  bool single_word = false;
  bool strips_left = false;
  bool strips_right = false;
  bool normalized = true;
  bool special = false;
};

/// A part of a text: an added token, or what lies between two.
struct TextPart {
  ByteRange range;
  const AddedToken* token = nullptr;
};

/// The added tokens of one stage.
class AddedTokenSearch {
 public:
  /// `token` stands where the text has `content` (the token's own, or that normalized); it is borrowed. Of
  /// two with one content the first counts, and an empty one is never found.
  void add(std::string_view content, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  /// The parts of `text` in their order; none is empty but the tokens.
  std::vector<TextPart> parts(std::string_view text) const;

 private:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    const AddedToken* token = nullptr;
  };
  std::optional<Match> next(std::string_view text, std::size_t from) const;
  std::size_t next_candidate(std::string_view text, std::size_t from) const;

  ByteTrie contents_;
  std::vector<const AddedToken*> tokens_;
  std::array<bool, 256> begins_{};  // with which bytes contents do
  std::string first_bytes_;
};

class AddedTokens {
 public:
  AddedTokens(AddedTokens&&) = default;  // a copy's searches would point into the original
  /// `field` is the list, or none; those of `instead` follow or take the place of one with their content, and
  /// `more` follow where there is none. A token that the model knows has its id; any other is numbered on
  /// from the model's tokens, as the reference engine does, whatever number the file gives it.
  AddedTokens(const std::optional<Field>& field, const std::vector<AddedToken>& instead,
              const std::vector<AddedToken>& more, const Vocabulary& model, const Normalizer& normalizer);

  const AddedTokenSearch& raw() const { return raw_; }
  const AddedTokenSearch& normalized() const { return normalized_; }

  const AddedToken* find(std::uint32_t id) const;
  const AddedToken* find(std::string_view content) const;
  /// What it is decoded to.
  const std::string& decoded(const AddedToken& token) const { return decoded_.at(token.id); }
  /// 0 if there are none.
  std::uint32_t largest_id() const { return largest_id_; }

 private:
  void add(AddedToken token, const Vocabulary& model);

  std::vector<std::uint32_t> order_;
  std::unordered_map<std::uint32_t, AddedToken> by_id_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::unordered_map<std::uint32_t, std::string> decoded_;
  AddedTokenSearch raw_, normalized_;
  std::uint32_t largest_id_ = 0;
};

}  // namespace moeloom::tokenizing
