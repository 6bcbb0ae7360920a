#include "data/record_reader.hpp"

#include "moeloom/base/checksum.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/text_file.hpp"

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

RecordReader::RecordReader(const ModelText& text, LearnRule rule, std::tm now)
    : text_(text), options_{.rule = rule, .now = now} {
  if (const std::optional<std::int32_t> eos = text.eos_token())
    options_.end_of_text = static_cast<std::uint32_t>(*eos);
}

RecordReader::Record RecordReader::read(std::string_view line, const std::string& origin) const {
  const Conversation conversation = parse_conversation(line, origin);
  if (text_.is_bytes()) {
    if (!conversation.text)
      throw ConfigError(
          {origin + ": a conversation needs a tokenizer and a chat template, and the model has none"});
    return {all_learned(text_.encode(*conversation.text, true))};
  }
  if (!conversation.text && !text_.chat().has_template())
    throw ConfigError({origin + ": a conversation needs a chat template, and " + text_.folder().string() +
                       " has neither chat_template.jinja nor one in tokenizer_config.json"});
  try {
    LearnedIds learned = learned_ids(conversation, text_.chat(), *text_.tokenizer(), options_);
    return {{std::move(learned.ids), std::move(learned.learned)}, static_cast<Index>(learned.unplaced_turns)};
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
  std::string tokenizer = sum_of(read_text_file(text_.folder() / "tokenizer.json"));
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
    if (std::filesystem::exists(text_.folder() / name))
      tokenizer += " " + sum_of(read_text_file(text_.folder() / name));
  key += "tokenizer: " + tokenizer + "\ntemplate:";
  if (text_.chat().has_template())
    for (const bool with_tools : {false, true})
      key += " " + sum_of(text_.chat().chat_template(with_tools).source());
  return key +
         "\nend of documents: " + (options_.end_of_text ? std::to_string(*options_.end_of_text) : "nothing");
}

}  // namespace moeloom
