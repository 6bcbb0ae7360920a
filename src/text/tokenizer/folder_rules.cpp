#include "tokenizer/folder_rules.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/text_file.hpp"

#include <algorithm>
#include <charconv>

namespace moeloom::tokenizing {
namespace {

constexpr std::string_view kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};

/// A token as a text or as an object with its content; none where it is null.
std::optional<AddedToken> token_of(const Field& field) {
  AddedToken token;
  token.special = true;
  token.normalized = false;
  if (field.value().text() != nullptr) {
    token.content = field.text();
    return token;
  }
  token.content = field.member("content").text();
  token.single_word = field.boolean_or("single_word", false);
  token.strips_left = field.boolean_or("lstrip", false);
  token.strips_right = field.boolean_or("rstrip", false);
  token.special = field.boolean_or("special", true);
  token.normalized = field.boolean_or("normalized", !token.special);
  return token;
}

/// {"256": {"content", ...}, ...} by the numbers of its keys.
std::vector<AddedToken> decoder_tokens(const Field& field) {
  std::vector<std::pair<std::uint32_t, AddedToken>> numbered;
  for (const auto& [key, value] : field.object()) {
    std::uint32_t id = 0;
    const Field each = field.member(key);
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) each.refuse("an id as its key");
    if (auto token = token_of(each)) numbered.emplace_back(id, std::move(*token));
  }
  std::ranges::stable_sort(numbered, {}, &std::pair<std::uint32_t, AddedToken>::first);
  std::vector<AddedToken> tokens;
  for (auto& [id, token] : numbered) tokens.push_back(std::move(token));
  return tokens;
}

void add_special_tokens(const Field& config, FolderRules& rules) {
  const auto add = [&](const Field& field) {
    auto token = token_of(field);
    const bool known = std::ranges::any_of(
        rules.tokens, [&](const AddedToken& each) { return each.content == token->content; });
    if (!known && !token->content.empty()) rules.tokens.push_back(std::move(*token));
  };
  for (const std::string_view name : kSpecialTokens)
    if (const auto field = config.optional(name)) add(*field);
  for (const char* list : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto field = config.optional(list);
    if (field && field->value().array() != nullptr)
      for (const Field& each : field->items()) add(each);
    if (field && field->value().object() != nullptr)
      for (const auto& [name, value] : field->object()) add(field->member(name));
  }
}

std::string content_of(const Field& config, std::string_view name) {
  const auto field = config.optional(name);
  return field ? token_of(*field)->content : "";
}

}  // namespace

FolderRules folder_rules(const std::filesystem::path& folder, const std::set<std::string>& ignored) {
  const std::filesystem::path path = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) return {};
  const JsonValue document = parse_json_value(read_text_file(path), path.string());
  const Field config(document, path.string());
  constexpr const char* kSplit = "split_special_tokens";
  if (!ignored.contains(kSplit) && config.boolean_or(kSplit, false))
    config.member(kSplit).refuse(
        std::string("false, as special tokens are not read as other texts here (ignored keys = ") + kSplit +
        " reads on as if it were)");
  FolderRules rules;
  if (const auto decoder = config.optional("added_tokens_decoder")) rules.tokens = decoder_tokens(*decoder);
  add_special_tokens(config, rules);
  rules.bos = content_of(config, "bos_token");
  rules.eos = content_of(config, "eos_token");
  if (config.optional("add_bos_token") || config.optional("add_eos_token"))
    rules.ends = {.bos = config.boolean_or("add_bos_token", false),
                  .eos = config.boolean_or("add_eos_token", false)};
  return rules;
}

}  // namespace moeloom::tokenizing
