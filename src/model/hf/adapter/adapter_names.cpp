#include "hf/adapter/adapter_names.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "hf/adapter/adapter_keys.hpp"
#include "hf/parameters/adapter_specs.hpp"

namespace moeloom {
namespace {

using Words = std::vector<std::string>;

/// Of models that are compiled or sharded, anywhere in a name.
constexpr std::array kWrappers = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};
/// Before the layers of a text model, whatever it is a part of.
constexpr std::array kTextPrefixes = {"base_model",     "model",      "module", "thinker",
                                      "language_model", "text_model", "llm"};

bool holds(const auto& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

std::string joined(auto begin, auto end) {
  std::string text;
  for (auto word = begin; word != end; ++word) text += (word == begin ? "" : ".") + *word;
  return text;
}

/// The first word of "layers.0.": those before it are the prefix.
Words::const_iterator first_layer(const Words& words) {
  for (auto word = words.begin(); word != words.end() && word + 1 != words.end(); ++word)
    if (*word == "layers" && is_digits(word[1])) return word;
  return words.end();
}

/// Where the prefix ends: at the layers, or at the only module beside them that may have factors.
Words::const_iterator first_inside(const Words& words) {
  const auto layer = first_layer(words);
  const bool is_beside = !words.empty() && words.back() == "per_layer_model_projection";
  return layer == words.end() && is_beside ? layer - 1 : layer;
}

/// Without what PEFT sets before the class that it wraps.
Words::const_iterator first_of_class(const Words& words) {
  auto word = words.begin();
  while (words.end() - word > 2 && word[0] == "base_model" && word[1] == "model") word += 2;
  return word;
}

/// Takes ".lora_A.weight" or ".lora_A.NAME.weight" off -> whether it is A; none: it is no factor.
std::optional<bool> take_ending(Words& words) {
  if (words.size() < 3 || words.back() != "weight") return std::nullopt;
  for (const std::size_t length : {std::size_t{2}, std::size_t{3}}) {
    if (words.size() <= length) return std::nullopt;
    const std::string word = words[words.size() - length];
    if (word != "lora_A" && word != "lora_B") continue;
    words.resize(words.size() - length);
    return word == "lora_A";
  }
  return std::nullopt;
}

/// A tensor's name, taken apart.
struct FactorName {
  std::string path, in_peft;
  bool is_a;
};

std::optional<FactorName> factor_name(const std::string& tensor, const std::string& body) {
  Words words = split(tensor, '.');
  std::erase_if(words, [](const std::string& word) { return holds(kWrappers, word); });
  const std::optional<bool> is_a = take_ending(words);
  if (!is_a) return std::nullopt;
  const auto inside = first_inside(words);
  const Words own_prefix = split(body, '.');
  const bool is_text = std::all_of(words.cbegin(), inside, [&](const std::string& word) {
    return holds(kTextPrefixes, word) || holds(own_prefix, word);
  });
  if (inside == words.end() || !is_text) return std::nullopt;
  return FactorName{body + joined(inside, words.cend()), joined(first_of_class(words), words.cend()), *is_a};
}

}  // namespace

AdapterNames adapter_names(const TensorShapes& tensors, const std::string& body) {
  AdapterNames names;
  for (const auto& [tensor, shape] : tensors) {
    const std::optional<FactorName> factor = factor_name(tensor, body);
    if (!factor) {
      names.strays.push_back(tensor);
      continue;
    }
    NamedFactors& factors = names.paths[factor->path];
    factors.in_peft = factor->in_peft;
    std::vector<Index>& own = factor->is_a ? factors.a : factors.b;
    if (!own.empty()) names.twice.push_back(tensor);
    own = shape;
    const std::string in_peft = kPeftPrefix + factor->path + (factor->is_a ? kFactorA : kFactorB);
    if (in_peft != tensor) names.tensors[in_peft] = tensor;
  }
  return names;
}

std::vector<std::string> stray_violations(const AdapterNames& names) {
  std::map<std::string, std::pair<Index, std::string>> kinds;  // how many of them, and the first
  for (const std::string& tensor : names.strays) {
    std::string kind = "that are no factors of the text model's layers";
    for (const char* module : {"lm_head", "embed_tokens"})
      if (holds(split(tensor, '.'), module))
        kind = std::string("of ") + module + ", which has no adapters here";
    auto& [count, first] = kinds[kind];
    if (count++ == 0) first = tensor;
  }
  for (const std::string& tensor : names.twice) {
    auto& [count, first] = kinds["of modules that have other factors in the file, as of a second adapter"];
    if (count++ == 0) first = tensor;
  }
  std::vector<std::string> violations;
  for (const auto& [kind, tensors] : kinds)
    violations.push_back(std::to_string(tensors.first) + " tensors " + kind + ", as " + tensors.second +
                         "; " + kMergeFirst);
  return violations;
}

}  // namespace moeloom
