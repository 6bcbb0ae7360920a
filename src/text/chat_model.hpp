// What a model's folder says about conversations: its templates and special tokens.
#pragma once

#include "moeloom/text/chat_template.hpp"

#include <filesystem>
#include <map>

namespace moeloom {

class Tokenizer;

class ChatModel {
 public:
  /// Templates: chat_template.jinja and additional_chat_templates/NAME.jinja; else "chat_template" of
  /// tokenizer_config.json, a text or a list of {name, template}. Special tokens: of tokenizer_config.json,
  /// else of special_tokens_map.json. A folder may have none of them. Throws IoError for files that cannot be
  /// read, ConfigError for what they hold.
  static ChatModel load(const std::filesystem::path& folder);

  bool has_template() const { return !templates_.empty(); }
  /// "tool_use", if there is one and tools are given; else "default". Throws ConfigError if there is no such
  /// template.
  const ChatTemplate& chat_template(bool with_tools) const;

  /// bos_token, eos_token, ... by name, each as a text; additional_special_tokens as an array.
  const JsonValue::Object& special_tokens() const { return special_tokens_; }
  /// Those that the tokenizer has, as variables for a template.
  JsonValue::Object variables(const Tokenizer& tokenizer) const;
  /// The content of "eos_token" and its like; empty if the model has none.
  std::string special_token(std::string_view name) const;

  /// One template for everything, without special tokens.
  static ChatModel of(ChatTemplate chat_template);

 private:
  std::string origin_;
  std::map<std::string, ChatTemplate> templates_;
  JsonValue::Object special_tokens_;
};

}  // namespace moeloom
