// What a model's ids mean: its tokenizer, or bytes where ids are bytes.
#pragma once

#include "moeloom/model/hf/config.hpp"
#include "moeloom/text/chat_model.hpp"
#include "moeloom/text/tokenizer.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace moeloom {

class ModelText {
 public:
  /// Of a folder with tokenizer.json; of another one where `config` has 256 ids: bytes. Throws ConfigError
  /// where it is neither, where ids do not fit the embedding's rows, or where a part of the tokenizer is not
  /// implemented. other_way: what the command takes instead of text, for that message.
  static ModelText of(const std::filesystem::path& folder, const ModelConfig& config,
                      const std::string& other_way = {});

  bool is_bytes() const { return !tokenizer_; }
  /// "byte" or "token"
  std::string unit() const { return is_bytes() ? "byte" : "token"; }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  /// Without a template where the folder has none.
  const ChatModel& chat() const { return chat_; }
  const std::filesystem::path& folder() const { return folder_; }

  std::vector<std::int32_t> encode(const std::string& text, bool add_special_tokens) const;
  std::string decode(std::span<const std::int32_t> ids) const;
  /// That end a text, by generation_config.json, else by config.json, else the tokenizer's eos_token.
  std::vector<std::int32_t> end_tokens() const;
  /// The tokenizer's eos_token, if it has one.
  std::optional<std::int32_t> eos_token() const;

 private:
  std::filesystem::path folder_;
  std::optional<Tokenizer> tokenizer_;
  ChatModel chat_;
};

/// eos_token_id of generation_config.json, else of config.json; empty where neither has one. Throws IoError.
std::vector<std::int32_t> end_tokens_in(const std::filesystem::path& folder);

/// Whether the folder has a tokenizer.json.
bool holds_tokenizer(const std::filesystem::path& folder);

/// Why ids of the tokenizer cannot be those of the model; empty if they can. A model may have more rows than
/// the tokenizer has ids: they are padding.
std::string vocabulary_violation(const Tokenizer& tokenizer, const std::filesystem::path& folder,
                                 const ModelConfig& config);

}  // namespace moeloom
