#include "cli/flag_words.hpp"

#include <array>

namespace moeloom {
namespace {

constexpr std::array kFlagWords = {
    FlagWord{"bf16 emulation", "MOELOOM_BF16=emulate"},
    FlagWord{"combine", "--combine"},
    FlagWord{"compute dtype", "--dtype"},
    FlagWord{"data format", "--data-format"},
    FlagWord{"dispatcher", "--dispatcher"},
    FlagWord{"exact sums", "--exact"},
    FlagWord{"expert layout", "--layout"},
    FlagWord{"freeze patterns", "--freeze"},
    FlagWord{"fused ops", "MOELOOM_FUSED_OPS"},
    FlagWord{"gmm budget", "--gmm-budget"},
    FlagWord{"gradients", "--gradients"},
    FlagWord{"held-out fraction", "--heldout"},
    FlagWord{"ignored keys", "--ignore-keys"},
    FlagWord{"learning rate", "--lr"},
    FlagWord{"min_p", "--min-p"},
    FlagWord{"memory ceiling", "--memory"},
    FlagWord{"model folder", "--model"},
    FlagWord{"node pool", "--node-pool"},
    FlagWord{"rebalance", "--rebalance"},
    FlagWord{"repetition_penalty", "--repetition-penalty"},
    FlagWord{"replace every", "--replace-every"},
    FlagWord{"row budget", "--row-budget"},
    FlagWord{"offload", "--offload"},
    FlagWord{"on nan", "--on-nan"},
    FlagWord{"overlap chunks", "--overlap"},
    FlagWord{"overlap grad reduce", "--overlap-grad-reduce"},
    FlagWord{"overlap param gather", "--overlap-param-gather"},
    FlagWord{"sequence length", "--seq-len"},
    FlagWord{"shard dense", "--shard-dense"},
    FlagWord{"tensors that may be missing", "--allow-missing"},
    FlagWord{"top_k", "--top-k"},
    FlagWord{"top_p", "--top-p"},
    FlagWord{"wire dtype", "--wire-dtype"},
};

constexpr std::string_view kEquals = " = ";

bool is_one_word(std::string_view field) {
  return field.find(' ') == std::string_view::npos;
}

/// Of a longer word, a path or a text in quotes.
bool belongs_to_more(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return letter || std::string_view("_-/\"").find(c) != std::string_view::npos;
}

bool has_value(std::string_view behind) {
  return behind.starts_with(kEquals) && behind.size() > kEquals.size() && behind[kEquals.size()] != '"';
}

/// The field that begins at `at`, if one does.
const FlagWord* word_at(std::string_view text, std::size_t at) {
  if (at > 0 && belongs_to_more(text[at - 1])) return nullptr;
  for (const FlagWord& word : kFlagWords) {
    if (!text.substr(at).starts_with(word.field)) continue;
    const std::string_view behind = text.substr(at + word.field.size());
    if (!behind.empty() && belongs_to_more(behind.front())) continue;
    if (!is_one_word(word.field) || has_value(behind)) return &word;
  }
  return nullptr;
}

std::string flag_before_value(const FlagWord& word) {
  return std::string(word.flag) + (word.flag.starts_with("--") ? ' ' : '=');
}

/// Fields with their values as flags with theirs.
std::string with_values_of_flags(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const FlagWord* word = word_at(text, at);
    if (word != nullptr && has_value(text.substr(at + word->field.size()))) {
      result += flag_before_value(*word);
      at += word->field.size() + kEquals.size();
    } else {
      result += text[at++];
    }
  }
  return result;
}

/// The flag beside a field, unless the text has it already.
std::string with_flags_beside(std::string text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const FlagWord* word = word_at(text, at);
    if (word != nullptr && text.find(word->flag) == std::string::npos)
      text.insert(at + word->field.size(), " (" + std::string(word->flag) + ")");
  }
  return text;
}

}  // namespace

std::span<const FlagWord> flag_words() {
  return kFlagWords;
}

std::string with_flags(std::string_view text) {
  return with_flags_beside(with_values_of_flags(text));
}

}  // namespace moeloom
