// What a model's ids mean: its tokenizer, or bytes where ids are bytes.
#pragma once

#include "moeloom/model/hf/config.hpp"
#include "moeloom/text/tokenizer.hpp"
#include "text/chat_model.hpp"

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace moeloom {

class ModelText {
 public:
  /// Of a folder with tokenizer.json; of another one where `config` has 256 ids: bytes. Throws ConfigError
  /// where it is neither, or where a part of the tokenizer is not implemented. other_way: what the command
  /// takes instead of text, for that message.
  static ModelText of(const std::filesystem::path& folder, const ModelConfig& config,
                      const std::string& other_way = {}, const std::set<std::string>& ignored_keys = {});

  /// Of a folder with tokenizer.json, or of that file without what lies beside it; any id will do. Throws as
  /// of() does.
  static ModelText of_tokenizer(const std::filesystem::path& path, bool with_templates,
                                const std::set<std::string>& ignored_keys);

  bool is_bytes() const { return !tokenizer_; }
  /// "byte" or "token"
  std::string unit() const { return is_bytes() ? "byte" : "token"; }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  /// Without a template where the folder has none.
  const ChatModel& chat() const { return chat_; }
  const std::filesystem::path& folder() const { return folder_; }
  /// Not there where ids are bytes.
  const std::filesystem::path& tokenizer_file() const { return tokenizer_file_; }

  /// Throws ConfigError as check_ids() does.
  std::vector<std::int32_t> encode(const std::string& text, bool add_special_tokens) const;
  /// Throws ConfigError for an id that the embedding has no row for: a tokenizer may have such tokens, as an
  /// unused [PAD], so long as no text holds one.
  void check_ids(std::span<const std::uint32_t> ids) const;
  std::string decode(std::span<const std::int32_t> ids) const;
  /// That end a text, by generation_config.json, else by config.json, else the tokenizer's eos_token.
  std::vector<std::int32_t> end_tokens() const;
  /// The tokenizer's eos_token, if it has one.
  std::optional<std::int32_t> eos_token() const;

 private:
  std::filesystem::path folder_, tokenizer_file_;
  Index rows_ = 0;
  std::optional<Tokenizer> tokenizer_;
  ChatModel chat_;
};

/// eos_token_id of generation_config.json, else of config.json; empty where neither has one. Throws IoError.
std::vector<std::int32_t> end_tokens_in(const std::filesystem::path& folder);

/// Whether the folder has a tokenizer.json.
bool holds_tokenizer(const std::filesystem::path& folder);

}  // namespace moeloom
