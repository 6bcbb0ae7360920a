#include "cli/flag_words.hpp"

#include <regex>

#include "cli/option_groups.hpp"

namespace moeloom {
namespace {

void add_fields(const OptionTable& table, std::vector<FlagWord>& words) {
  for (const Option& option : table.options())
    if (!option.field.empty()) words.push_back({option.field, "--" + option.name});
}

struct Pattern {
  std::regex with_value;
  std::regex alone;
  std::string flag_before_value;
};

Pattern pattern_of(const FlagWord& word) {
  // Not of a longer word, a path or a text in quotes.
  const std::string begin = "(^|[^-\\w/\"])", end = "(?![-\\w/\"])";
  return {std::regex(begin + word.field + " = (?=[^\"])"), std::regex(begin + "(" + word.field + ")" + end),
          word.flag + (word.flag.starts_with("--") ? " " : "=")};
}

}  // namespace

const std::vector<FlagWord>& flag_words() {
  static const std::vector<FlagWord> words = [] {
    TrainOptions train;
    GenerateOptions generate;
    ConvertOptions convert;
    Upcycling upcycling;
    std::vector<FlagWord> all = {{"bf16 emulation", "MOELOOM_BF16=emulate"},
                                 {"fused ops", "MOELOOM_FUSED_OPS"}};
    add_fields(train_table(train), all);
    add_fields(generate_table(generate), all);
    add_fields(convert_table(convert, upcycling), all);
    return all;
  }();
  return words;
}

std::string with_flags(std::string_view words) {
  static const std::vector<Pattern> patterns = [] {
    std::vector<Pattern> all;
    for (const FlagWord& word : flag_words()) all.push_back(pattern_of(word));
    return all;
  }();
  std::string text(words);
  for (const Pattern& pattern : patterns)
    text = std::regex_replace(text, pattern.with_value, "$1" + pattern.flag_before_value);
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const auto& [field, flag] = flag_words()[i];
    if (field.find(' ') != std::string::npos && text.find(flag) == std::string::npos)
      text = std::regex_replace(text, patterns[i].alone, "$1$2 (" + flag + ")",
                                std::regex_constants::format_first_only);
  }
  return text;
}

}  // namespace moeloom
