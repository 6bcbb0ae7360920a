#include "cli/rows/flag_words.hpp"

#include "cli/flag_names.hpp"
#include "cli/rows/command_tables.hpp"
#include "fields/option_groups.hpp"

namespace moeloom {
namespace {

FlagWord word_of(const std::string& field, const std::string& flag) {
  // Not of a longer word, a path or a text in quotes.
  const std::string begin = "(^|[^-\\w/\"])", end = "(?![-\\w/\"])";
  return {field, flag, std::regex(begin + field + " = (?=[^\"])"),
          std::regex(begin + "(" + field + ")" + end)};
}

std::vector<FlagWord> all_words() {
  TrainOptions train;
  GenerateOptions generate;
  ConvertOptions convert;
  Upcycling upcycling;
  std::vector<FlagWord> words = {word_of("bf16 emulation", "MOELOOM_BF16=emulate"),
                                 word_of("fused ops", "MOELOOM_FUSED_OPS"),
                                 word_of("planned faults", "MOELOOM_FAULT")};
  for (const OptionTable& table :
       {train_table(train), generate_table(generate), convert_table(convert, upcycling)})
    for (const Option& option : table.options())
      if (!option.field.empty()) words.push_back(word_of(option.field, "--" + option.name));
  return words;
}

}  // namespace

const std::vector<FlagWord>& flag_words() {
  static const std::vector<FlagWord> words = all_words();
  return words;
}

std::string with_flags(std::string_view words) {
  std::string text = with_flag_names(words);
  for (const FlagWord& word : flag_words())
    text = std::regex_replace(text, word.with_value,
                              "$1" + word.flag + (word.flag.starts_with("--") ? " " : "="));
  for (const FlagWord& word : flag_words())
    if (word.field.find(' ') != std::string::npos && text.find(word.flag) == std::string::npos)
      text = std::regex_replace(text, word.alone, "$1$2 (" + word.flag + ")",
                                std::regex_constants::format_first_only);
  return text;
}

}  // namespace moeloom
