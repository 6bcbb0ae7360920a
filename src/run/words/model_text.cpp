#include "words/model_text.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/io/json_value.hpp"

#include <algorithm>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr Index kBytes = 256;  // the vocabulary in which an id is a byte

/// An id or a list of them; empty where there is none.
std::vector<std::int32_t> ids_of(const JsonValue* value) {
  std::vector<std::int32_t> ids;
  const auto take = [&](const JsonValue& each) {
    if (const std::int64_t* id = each.integer(); id != nullptr && *id >= 0 && *id <= INT32_MAX)
      ids.push_back(static_cast<std::int32_t>(*id));
  };
  if (value == nullptr) return ids;
  if (const JsonValue::Array* all = value->array())
    std::ranges::for_each(*all, take);
  else
    take(*value);
  return ids;
}

}  // namespace

bool holds_tokenizer(const fs::path& folder) {
  return !folder.empty() && fs::exists(folder / kTokenizerFile);
}

ModelText ModelText::of(const fs::path& folder, const ModelConfig& config, const std::string& other_way,
                        const std::set<std::string>& ignored_keys) {
  ModelText text;
  text.folder_ = folder;
  text.tokenizer_file_ = folder / kTokenizerFile;
  text.rows_ = config.vocab_size;
  if (holds_tokenizer(folder)) {
    text.tokenizer_ = Tokenizer::of_folder(folder, ignored_keys);
    text.chat_ = ChatModel::load(folder);
  } else if (config.vocab_size != kBytes) {
    throw ConfigError({"there is no " + std::string(kTokenizerFile) + " in " + folder.string() +
                       ": vocab_size = " + std::to_string(config.vocab_size) +
                       ", and bytes need 256; put the model's tokenizer there" +
                       (other_way.empty() ? "" : ", or " + other_way)});
  }
  return text;
}

ModelText ModelText::of_tokenizer(const fs::path& path, bool with_templates,
                                  const std::set<std::string>& ignored_keys) {
  ModelText text;
  const bool is_folder = fs::is_directory(path);
  text.folder_ = is_folder ? path : path.parent_path();
  text.tokenizer_file_ = is_folder ? path / kTokenizerFile : path;
  text.tokenizer_ = is_folder ? Tokenizer::of_folder(path, ignored_keys) : Tokenizer::load(path);
  if (is_folder && with_templates) text.chat_ = ChatModel::load(path);
  text.rows_ = static_cast<Index>(text.tokenizer_->vocabulary_size());
  return text;
}

void ModelText::check_ids(std::span<const std::uint32_t> ids) const {
  const auto beyond = std::ranges::find_if(ids, [&](std::uint32_t id) { return Index{id} >= rows_; });
  if (beyond == ids.end()) return;
  throw ConfigError({"token " + std::to_string(*beyond) + " (\"" +
                     tokenizer_->token_of(*beyond).value_or("") + "\") of " + tokenizer_file_.string() +
                     ": the embedding has vocab_size = " + std::to_string(rows_) + " rows"});
}

std::vector<std::int32_t> ModelText::encode(const std::string& text, bool add_special_tokens) const {
  std::vector<std::int32_t> ids;
  if (tokenizer_) {
    const std::vector<std::uint32_t> encoded = tokenizer_->encode(text, add_special_tokens);
    check_ids(encoded);
    ids.assign(encoded.begin(), encoded.end());
  } else {
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  }
  return ids;
}

std::string ModelText::decode(std::span<const std::int32_t> ids) const {
  if (tokenizer_) return tokenizer_->decode(std::vector<std::uint32_t>(ids.begin(), ids.end()), true);
  std::string bytes;
  for (const std::int32_t id : ids) bytes.push_back(static_cast<char>(id));
  return bytes;
}

std::vector<std::int32_t> end_tokens_in(const fs::path& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path file = folder / name;
    if (!fs::exists(file)) continue;
    const JsonValue document = parse_json_value(read_text_file(file), file.string());
    std::vector<std::int32_t> ids = ids_of(document.find("eos_token_id"));
    if (!ids.empty()) return ids;
  }
  return {};
}

std::vector<std::int32_t> ModelText::end_tokens() const {
  std::vector<std::int32_t> ids = end_tokens_in(folder_);
  if (ids.empty())
    if (const std::optional<std::int32_t> eos = eos_token()) ids.push_back(*eos);
  return ids;
}

std::optional<std::int32_t> ModelText::eos_token() const {
  if (!tokenizer_) return std::nullopt;
  const std::string token = chat_.special_token("eos_token");
  const std::optional<std::uint32_t> id = token.empty() ? std::nullopt : tokenizer_->id_of(token);
  if (!id) return std::nullopt;
  return static_cast<std::int32_t>(*id);
}

}  // namespace moeloom
