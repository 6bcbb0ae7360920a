// What tokenizer_config.json adds to a tokenizer.json, as transformers 5.15 reads both.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.hpp"

namespace moeloom::tokenizing {

struct FolderRules {
  /// Tokens that tokenizer.json may lack, in the order in which they are numbered on: those of
  /// added_tokens_decoder by their ids, then special tokens.
  std::vector<AddedToken> tokens = {};
  /// Whether a text gets the BOS before and the EOS behind it, where add_bos_token or add_eos_token says so;
  /// then the post-processor of tokenizer.json adds nothing.
  struct Ends {
    bool bos = false, eos = false;
  };
  std::optional<Ends> ends = {};
  std::string bos, eos;
};

/// Of the folder's tokenizer_config.json; nothing where there is none. Throws IoError for what is no JSON,
/// ConfigError for values of other kinds, and for
/// split_special_tokens unless `ignored` names it.
FolderRules folder_rules(const std::filesystem::path& folder, const std::set<std::string>& ignored);

}  // namespace moeloom::tokenizing
