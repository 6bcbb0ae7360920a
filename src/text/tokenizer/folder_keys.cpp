#include "tokenizer/folder_keys.hpp"

#include "moeloom/base/errors.hpp"
#include "text/conversation.hpp"

#include <algorithm>
#include <map>
#include <string_view>

namespace moeloom::tokenizing {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kRead[] = {"added_tokens_decoder"sv,
                                      "additional_special_tokens"sv,
                                      "extra_special_tokens"sv,
                                      "add_bos_token"sv,
                                      "add_eos_token"sv,
                                      "add_prefix_space"sv,
                                      "split_special_tokens"sv,
                                      "chat_template"sv,
                                      "model_specific_special_tokens"sv};

/// Of no effect on the ids of a text where there is a tokenizer.json, by the reason.
const std::map<std::string_view, std::vector<std::string_view>> kWithoutEffect = {
    {"tokenizer.json says it",
     {"tokenizer_class", "backend",        "auto_map",      "legacy",
      "from_slow",       "use_fast",       "errors",        "sp_model_kwargs",
      "extra_ids",       "special_tokens", "bos_id",        "eos_id",
      "pad_id",          "eos_token_ids",  "language",      "remove_space",
      "keep_accents",    "unk_id",         "do_lower_case", "do_basic_tokenize",
      "src_lang",        "tgt_lang",       "strip_accents", "tokenize_chinese_chars",
      "tokenizer_type",  "trim_offsets"}},
    {"how transformers makes batches, at each call",
     {"padding_side", "truncation_side", "padding", "truncation", "max_length", "max_len", "model_max_length",
      "stride", "truncation_strategy", "pad_to_multiple_of", "model_input_names", "return_token_type_ids",
      "return_attention_mask", "return_special_tokens_mask", "return_tensors", "pad_token_type_id"}},
    {"how ids become texts again",
     {"clean_up_tokenization_spaces",
      "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
      "spaces_between_special_tokens", "response_schema", "response_template", "tool_parser_type"}},
    {"where the files came from",
     {"name_or_path",
      "pretrained_model_name_or_path",
      "special_tokens_map_file",
      "tokenizer_file",
      "vocab_file",
      "merges_file",
      "added_tokens_file",
      "init_inputs",
      "is_local",
      "local_files_only",
      "files_loaded",
      "transformers_version",
      "revision",
      "code_revision",
      "tokenizer_revision",
      "cache_dir",
      "subfolder",
      "token",
      "use_auth_token",
      "force_download",
      "resume_download",
      "proxies",
      "trust_remote_code",
      "device_map",
      "gguf_file",
      "use_safetensors"}},
    {"of programs around it",
     {"processor_class", "model_type", "is_fast", "default_chat_template", "auto_processor", "image_seq_len",
      "image_processor_type", "feature_extractor_type", "verbose", "tokenizer_mode",
      "use_default_system_prompt", "vocab_size"}},
    {"of mistral's dense families", {"fix_mistral_regex"}},
};

/// `<name>_token` is a token, if it is none of add_..._token; its id is the tokenizer's to say.
bool is_token(std::string_view key, const JsonValue& value) {
  return key.ends_with("_token") && (value.text() != nullptr || value.object() != nullptr);
}

bool is_known(std::string_view key) {
  return key.ends_with("_token_id") || key.starts_with("_") || key.starts_with("unsloth_") ||
         std::ranges::find(kRead, key) != std::end(kRead) ||
         std::ranges::any_of(kWithoutEffect, [&](const auto& reason) {
           return std::ranges::find(reason.second, key) != reason.second.end();
         });
}

}  // namespace

void check_folder_keys(const Field& config, const std::set<std::string>& ignored) {
  std::set<std::string> unknown;
  for (const auto& [key, value] : config.object())
    if (!is_known(key) && !is_token(key, value) && !says_nothing(value)) unknown.insert(key);
  std::string names;
  std::string all;
  for (const std::string& key : unknown)
    if (!ignored.contains(key)) names += (names.empty() ? "\"" : ", \"") + key + "\"";
  if (names.empty()) return;
  unknown.insert(ignored.begin(), ignored.end());
  for (const std::string& key : unknown) all += (all.empty() ? "" : ",") + key;
  throw ConfigError({config.path() + ": unknown " + names +
                     ", which may change the ids of a text; if not: ignored keys = " + all});
}

}  // namespace moeloom::tokenizing
