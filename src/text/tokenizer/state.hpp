// What was read from a tokenizer.json, and the way of a text through it.
#pragma once

#include "moeloom/text/tokenizer.hpp"

#include <string>
#include <variant>
#include <vector>

#include "tokenizer/added_tokens.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/decoder.hpp"
#include "tokenizer/folder_rules.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/post_processor.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/unigram.hpp"
#include "tokenizer/workspace.hpp"

namespace moeloom {

class Tokenizer::State {
 public:
  /// `file` is needed no longer than this takes. Throws ConfigError as Tokenizer::load does.
  State(const tokenizing::Field& file, const tokenizing::FolderRules& rules);

  // As Tokenizer's.
  std::vector<std::uint32_t> encode(std::string_view utf8, bool add_special_tokens) const;
  Encoding encode_with_offsets(std::string_view utf8, bool add_special_tokens) const;
  std::string decode(std::span<const std::uint32_t> ids, bool skip_special_tokens) const;

  const tokenizing::Vocabulary& vocabulary() const {
    return std::visit([](const auto& model) -> const tokenizing::Vocabulary& { return model.vocabulary(); },
                      model_);
  }
  const tokenizing::AddedTokens& added() const { return added_; }

 private:
  using Model = std::variant<tokenizing::Bpe, tokenizing::Unigram>;
  struct Run;

  static Model model_of(const tokenizing::Field& field, tokenizing::PreTokenizer& pre_tokenizer);
  void encode_input(std::string_view utf8, Run& run) const;
  void encode_raw(const tokenizing::Piece& piece, Run& run) const;
  void encode_piece(const tokenizing::Piece& piece, Run& run) const;
  void encode_word(const tokenizing::Piece& word, Run& run) const;
  void add_tokens(std::string_view word, tokenizing::Workspace& space) const;

  tokenizing::Normalizer normalizer_;
  tokenizing::PreTokenizer pre_tokenizer_;
  Model model_;
  tokenizing::AddedTokens added_;
  tokenizing::PostProcessor post_processor_;
  tokenizing::TokenDecoder decoder_;
  mutable tokenizing::WorkspacePool workspaces_;
};

}  // namespace moeloom
