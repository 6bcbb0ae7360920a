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
  /// Of added_tokens_decoder, by their ids: tokens that tokenizer.json may lack or has with other properties,
  /// which are then these.
  std::vector<AddedToken> decoder_tokens = {};
  /// Tokens that are added behind those, in this order, where they are not known yet.
  std::vector<AddedToken> special_tokens = {};
  /// Whether a text gets the BOS before and the EOS behind it, as add_bos_token and add_eos_token say; what
  /// the post-processor of tokenizer.json puts on that side is then not added. None: that is.
  std::optional<bool> adds_bos = {}, adds_eos = {};
  std::string bos, eos;
  std::optional<bool> add_prefix_space = {};
};

/// Of the folder's tokenizer_config.json and, where that has no added_tokens_decoder, of its
/// special_tokens_map.json and added_tokens.json; nothing where there are none. Throws IoError for what is no
/// JSON, ConfigError for values of other kinds, for unknown keys and for split_special_tokens, unless
/// `ignored` names them.
FolderRules folder_rules(const std::filesystem::path& folder, const std::set<std::string>& ignored);

}  // namespace moeloom::tokenizing
