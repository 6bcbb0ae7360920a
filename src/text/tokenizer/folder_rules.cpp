#include "tokenizer/folder_rules.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "tokenizer/folder_keys.hpp"

namespace moeloom::tokenizing {
namespace {

constexpr std::string_view kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};
constexpr const char* kPrefixSpace = "add_prefix_space";

/// A token as a text, which is special, or as an object with its content, which is so by `special` where it
/// does not say.
AddedToken token_of(const Field& field, bool special = true) {
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
  token.special = field.boolean_or("special", special);
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
    numbered.emplace_back(id, token_of(each, false));
  }
  std::ranges::stable_sort(numbered, {}, &std::pair<std::uint32_t, AddedToken>::first);
  std::vector<AddedToken> tokens;
  for (auto& [id, token] : numbered) tokens.push_back(std::move(token));
  return tokens;
}

/// The named tokens in the order in which they are added.
class NamedTokens {
 public:
  /// A later one of the same name takes its place.
  void set(const std::string& name, const Field& field) {
    AddedToken token = token_of(field);
    const auto known = std::ranges::find(named_, name, &Named::first);
    if (known == named_.end())
      named_.emplace_back(name, std::move(token));
    else
      known->second = std::move(token);
  }

  /// Tokens without a name, behind those of other lists, or {name: token}.
  void set_extra(const Field& field) {
    if (field.value().object() != nullptr) {
      for (const auto& [name, value] : field.object())
        if (!value.is_null()) set(name, field.member(name));
      return;
    }
    for (const Field& each : field.items()) extra_.push_back(token_of(each));
  }

  /// Every `<name>_token` of an object, and its lists.
  void read(const Field& object) {
    for (const std::string_view name : kSpecialTokens)
      if (const auto field = object.optional(name)) set(std::string(name), *field);
    for (const auto& [name, value] : object.object())
      if (name.ends_with("_token") && (value.text() != nullptr || value.object() != nullptr))
        set(name, object.member(name));
    const auto extra = object.optional("extra_special_tokens");
    const auto additional = object.optional("additional_special_tokens");
    if (extra)
      set_extra(*extra);
    else if (additional)
      set_extra(*additional);
    if (const auto field = object.optional("model_specific_special_tokens")) set_extra(*field);
  }

  std::string content_of(std::string_view name) const {
    const auto known = std::ranges::find(named_, name, &Named::first);
    return known == named_.end() ? "" : known->second.content;
  }

  std::vector<AddedToken> all() const {
    std::vector<AddedToken> tokens;
    for (const auto& [name, token] : named_) tokens.push_back(token);
    tokens.insert(tokens.end(), extra_.begin(), extra_.end());
    return tokens;
  }

 private:
  using Named = std::pair<std::string, AddedToken>;
  std::vector<Named> named_;
  std::vector<AddedToken> extra_;
};

/// {"<a>": 256, ...} of added_tokens.json, by their ids; special where `special` has them too.
std::vector<AddedToken> tokens_by_content(const Field& object, const std::vector<AddedToken>& special) {
  std::vector<std::pair<std::uint32_t, AddedToken>> numbered;
  for (const auto& [content, value] : object.object()) {
    AddedToken token;
    token.content = content;
    token.special = std::ranges::find(special, content, &AddedToken::content) != special.end();
    token.normalized = !token.special;
    numbered.emplace_back(object.member(content).id(), std::move(token));
  }
  std::ranges::stable_sort(numbered, {}, &std::pair<std::uint32_t, AddedToken>::first);
  std::vector<AddedToken> tokens;
  for (auto& [id, token] : numbered) tokens.push_back(std::move(token));
  return tokens;
}

/// Of a file that may not be there.
class OptionalFile {
 public:
  explicit OptionalFile(const std::filesystem::path& path) : path_(path.string()) {
    if (std::filesystem::exists(path)) document_ = parse_json_value(read_text_file(path), path_);
  }
  std::optional<Field> field() const {
    return document_ ? std::optional<Field>(std::in_place, *document_, path_) : std::nullopt;
  }

 private:
  std::string path_;
  std::optional<JsonValue> document_;
};

void check_keys(const Field& config, const std::set<std::string>& ignored) {
  check_folder_keys(config, ignored);
  constexpr const char* kSplit = "split_special_tokens";
  if (!ignored.contains(kSplit) && config.boolean_or(kSplit, false))
    config.member(kSplit).refuse(
        std::string("false, as special tokens are not read as other texts here (ignored keys = ") + kSplit +
        " reads on as if it were)");
}

}  // namespace

FolderRules folder_rules(const std::filesystem::path& folder, const std::set<std::string>& ignored) {
  const OptionalFile config_file(folder / "tokenizer_config.json");
  const auto config = config_file.field();
  FolderRules rules;
  NamedTokens named;
  if (config) {
    check_keys(*config, ignored);
    named.read(*config);
    if (config->optional("add_bos_token")) rules.adds_bos = config->boolean_or("add_bos_token", false);
    if (config->optional("add_eos_token")) rules.adds_eos = config->boolean_or("add_eos_token", false);
    if (!ignored.contains(kPrefixSpace) && config->optional(kPrefixSpace))
      rules.add_prefix_space = config->boolean_or(kPrefixSpace, false);
  }
  if (const auto decoder = config ? config->optional("added_tokens_decoder") : std::nullopt) {
    rules.decoder_tokens = decoder_tokens(*decoder);
    rules.special_tokens = named.all();
  } else {  // as folders were written before 4.34
    const OptionalFile map(folder / "special_tokens_map.json");
    const OptionalFile added(folder / "added_tokens.json");
    if (const auto field = map.field()) named.read(*field);
    if (const auto field = added.field()) rules.special_tokens = tokens_by_content(*field, named.all());
    std::ranges::copy(named.all(), std::back_inserter(rules.special_tokens));
  }
  rules.bos = named.content_of("bos_token");
  rules.eos = named.content_of("eos_token");
  return rules;
}

}  // namespace moeloom::tokenizing
