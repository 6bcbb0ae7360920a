#include "data/record_reader.hpp"

#include "base/checksum.hpp"
#include "base/text.hpp"
#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"

#include <chrono>
#include <ctime>

namespace moeloom {
namespace {

Example all_learned(const std::vector<std::int32_t>& ids) {
  return {{ids.begin(), ids.end()}, std::vector<std::uint8_t>(ids.size(), 1)};
}

std::string sum_of(const std::string& text) {
  return hex_text(checksum(std::as_bytes(std::span(text))));
}

/// Equal for equal values alone.
std::string whole_text_of(const JsonValue& value) {
  std::string all;
  if (const JsonValue::Object* members = value.object()) {
    for (const auto& [name, member] : *members)
      all += std::to_string(name.size()) + ":" + name + "=" + whole_text_of(member) + ",";
    return "{" + all + "}";
  }
  if (const JsonValue::Array* array = value.array()) {
    for (const JsonValue& each : *array) all += whole_text_of(each) + ",";
    return "[" + all + "]";
  }
  if (const std::string* text = value.text()) return std::to_string(text->size()) + ":" + *text;
  return described(value);
}

}  // namespace

std::tm day_of(const std::filesystem::path& file) {
  require_regular_file(file);
  const auto modified = std::chrono::file_clock::to_sys(std::filesystem::last_write_time(file));
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(modified));
  std::tm day{};
  gmtime_r(&seconds, &day);
  return day;
}

RecordReader::RecordReader(const ModelText& text, RowOptions rows, std::set<std::string> ignored_keys,
                           std::tm now)
    : text_(text),
      rows_(std::move(rows)),
      ignored_keys_(std::move(ignored_keys)),
      options_{.rule = rows_.learn,
               .variables = rows_.switches.variables,
               .now = now,
               .ignored_keys = ignored_keys_} {
  if (const std::optional<std::int32_t> eos = text.eos_token())
    options_.end_of_text = static_cast<std::uint32_t>(*eos);
}

RecordReader::Record RecordReader::read(std::string_view line, const std::string& origin) const {
  return read(parse_conversation(line, origin, ignored_keys_), origin);
}

RecordReader::Record RecordReader::read(const Conversation& conversation, const std::string& origin) const {
  if (conversation.text && conversation.text->empty())
    throw IoError(origin + ": text: expected at least one character");
  if (text_.is_bytes()) {
    if (!conversation.text)
      throw ConfigError(
          {origin + ": a conversation needs a tokenizer and a chat template, and the model has none"});
    if (conversation.prompt)
      throw ConfigError({origin + ": a prompt and its completion need a tokenizer, and the model has none"});
    return {all_learned(text_.encode(*conversation.text, true)), 0, 0, conversation.other_columns};
  }
  if (!conversation.text && !text_.chat().has_template())
    throw ConfigError({origin + ": a conversation needs a chat template, and " + text_.folder().string() +
                       " has neither chat_template.jinja nor one in tokenizer_config.json"});
  try {
    LearnedIds learned = learned_ids(conversation, text_.chat(), *text_.tokenizer(), options_);
    text_.check_ids(learned.ids);
    std::vector<std::string> unread = conversation.other_columns;
    for (const std::string& key : learned.unread_keys) unread.push_back(key);
    return {{std::move(learned.ids), std::move(learned.learned)},
            static_cast<Index>(learned.assistant_turns),
            static_cast<Index>(learned.unplaced_turns),
            std::move(unread)};
  } catch (const ConfigError& error) {
    throw ConfigError({origin + ": " + error.what()});
  }
}

Example RecordReader::document(std::string_view text) const {
  return all_learned(text_.encode(std::string(text), false));
}

std::string RecordReader::key() const {
  std::string key = "learns: " + std::to_string(static_cast<int>(options_.rule)) + "\n";
  if (text_.is_bytes()) return key + "tokenizer: bytes";
  std::string tokenizer = sum_of(read_text_file(text_.tokenizer_file()));
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"})
    if (std::filesystem::exists(text_.folder() / name))
      tokenizer += " " + sum_of(read_text_file(text_.folder() / name));
  for (const auto& [name, value] : rows_.switches.variables)
    key += "template switch: " + name + " " + whole_text_of(value) + "\n";
  if (!ignored_keys_.empty())
    key += "ignored keys: " + joined({ignored_keys_.begin(), ignored_keys_.end()}, ",") + "\n";
  key += "tokenizer: " + tokenizer + "\ntemplate:";
  if (text_.chat().has_template())
    for (const bool with_tools : {false, true})
      key += " " + sum_of(text_.chat().chat_template(with_tools).source());
  return key +
         "\nend of documents: " + (options_.end_of_text ? std::to_string(*options_.end_of_text) : "nothing");
}

}  // namespace moeloom
