#include "moeloom/text/tokenizer.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/index.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>

#include "tokenizer/state.hpp"

namespace moeloom {

Tokenizer Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  return parse(read_text_file(tokenizer_json), tokenizer_json.string());
}

Tokenizer Tokenizer::of_folder(const std::filesystem::path& folder, const std::set<std::string>& ignored) {
  const std::filesystem::path path = folder / "tokenizer.json";
  const JsonValue file = parse_json_value(read_text_file(path), path.string());
  const tokenizing::Field root(file, path.string());
  root.object();
  return Tokenizer(std::make_shared<const State>(root, tokenizing::folder_rules(folder, ignored)));
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& origin) {
  const JsonValue file = parse_json_value(json, origin);
  const tokenizing::Field root(file, origin);
  root.object();
  return Tokenizer(std::make_shared<const State>(root, tokenizing::FolderRules()));
}

std::vector<std::uint32_t> Tokenizer::encode(std::string_view utf8, bool add_special_tokens) const {
  return state_->encode(utf8, add_special_tokens);
}

Encoding Tokenizer::encode_with_offsets(std::string_view utf8, bool add_special_tokens) const {
  return state_->encode_with_offsets(utf8, add_special_tokens);
}

std::vector<std::vector<std::uint32_t>> Tokenizer::encode_all(std::span<const std::string_view> texts,
                                                              bool add_special_tokens) const {
  std::vector<std::vector<std::uint32_t>> all(texts.size());
  parallel_for(std::ssize(texts), [&](Index i) {
    const auto place = static_cast<std::size_t>(i);
    all[place] = encode(texts[place], add_special_tokens);
  });
  return all;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids, bool skip_special_tokens) const {
  return state_->decode(ids, skip_special_tokens);
}

std::uint32_t Tokenizer::vocabulary_size() const {
  const bool any_added = state_->added().find(state_->added().largest_id()) != nullptr;
  return std::max(state_->vocabulary().size(), any_added ? state_->added().largest_id() + 1 : 0);
}

std::optional<std::uint32_t> Tokenizer::id_of(std::string_view token) const {
  if (const tokenizing::AddedToken* added = state_->added().find(token)) return added->id;
  return state_->vocabulary().id_of(token);
}

std::optional<std::string> Tokenizer::token_of(std::uint32_t id) const {
  if (const tokenizing::AddedToken* added = state_->added().find(id)) return added->content;
  const std::string* token = state_->vocabulary().token(id);
  return token == nullptr ? std::nullopt : std::optional(*token);
}

bool Tokenizer::is_special(std::uint32_t id) const {
  const tokenizing::AddedToken* added = state_->added().find(id);
  return added != nullptr && added->special;
}

}  // namespace moeloom
