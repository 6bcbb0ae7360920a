#include "hf/adapter/adapter_targets.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "hf/adapter/adapter_keys.hpp"
#include "hf/adapter/module_pattern.hpp"

namespace moeloom {
namespace {

constexpr std::size_t kLongestName =
    2048;  // of what strangers write, which is matched with each module's name

/// Whose q_proj and v_proj PEFT takes where target_modules is null.
constexpr std::array kWithDefault = {"llama", "llama4", "mistral", "mixtral",    "qwen2",
                                     "qwen3", "gemma",  "gemma2",  "gemma3_text"};

bool ends_with_words(const std::string& module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

std::string in_small_letters(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

ModuleNames names_in(const Document& document, const std::string& key) {
  if (document.is_list(key)) return ModuleNames(document.texts(key));
  const std::string text = document.text(key);
  return in_small_letters(text) == "all-linear" ? ModuleNames() : ModuleNames::of_pattern(text);
}

/// What PEFT makes of null.
ModuleNames default_targets(const Document& document, const std::string& model_type) {
  if (std::ranges::find(kWithDefault, model_type) != kWithDefault.end())
    return ModuleNames(std::vector<std::string>{"q_proj", "v_proj"});
  return says_nothing(document, "target_parameters") ? ModuleNames()
                                                     : ModuleNames(std::vector<std::string>());
}

}  // namespace

ModuleNames::ModuleNames(std::vector<std::string> ends)
    : contain_([ends = std::move(ends)](const std::string& module) {
        return std::ranges::any_of(ends,
                                   [&](const std::string& name) { return ends_with_words(module, name); });
      }) {}

ModuleNames ModuleNames::of_pattern(const std::string& pattern) {
  ModuleNames names;
  names.contain_ = module_pattern(pattern, kLongestName);
  return names;
}

std::optional<bool> ModuleNames::contain(const std::string& module) const {
  if (!contain_ || module.size() > kLongestName) return std::nullopt;
  return contain_(module);
}

AdapterTargets::AdapterTargets(const Document& document, const std::string& model_type,
                               const std::set<std::string>& ignored) {
  const auto says = [&](const std::string& key) { return document.has(key) && !ignored.contains(key); };
  if (says("target_modules"))
    targets_ = names_in(document, "target_modules");
  else if (!ignored.contains("target_modules"))
    targets_ = default_targets(document, model_type);
  if (says("exclude_modules") && !says_nothing(document, "exclude_modules"))
    excluded_ = names_in(document, "exclude_modules");
  if (says("modules_to_save") && document.is_list("modules_to_save"))
    saved_ = document.texts("modules_to_save");
  const bool has_list = document.is_list("target_modules");
  if (!has_list && document.has("target_modules")) return;  // beside a pattern PEFT refuses the layers
  if (has_list)
    for (const std::string& name : document.texts("target_modules")) whole_names_.insert(name);
  read_layers(document, ignored);
}

void AdapterTargets::read_layers(const Document& document, const std::set<std::string>& ignored) {
  const std::string key = "layers_to_transform", pattern = "layers_pattern";
  if (!document.has(key) || ignored.contains(key)) return;
  const std::vector<Index> layers =
      document.is_list(key) ? document.integers(key) : std::vector{document.integer(key)};
  if (layers.empty()) return;
  layers_.emplace();
  for (const Index layer : layers) layers_->insert(std::to_string(layer));
  if (says_nothing(document, pattern) || ignored.contains(pattern)) return;
  for (const std::string& name :
       document.is_list(pattern) ? document.texts(pattern) : std::vector{document.text(pattern)})
    before_layers_.push_back(ModuleNames::of_pattern(".*\\." + name));
}

/// The first number behind a pattern's name, or behind any two names, tells the layer.
std::optional<bool> AdapterTargets::is_in_layers(const std::string& module) const {
  const std::vector<std::string> words = split(module, '.');
  const auto found_behind = [&](const auto& fits) -> std::optional<std::string> {
    std::string before = words.front();
    for (std::size_t i = 1; i + 1 < words.size(); before += "." + words[i++])
      if (is_digits(words[i]) && fits(before)) return words[i];
    return std::nullopt;
  };
  if (before_layers_.empty()) {
    const auto layer =
        found_behind([](const std::string& text) { return text.find('.') != std::string::npos; });
    return layer && layers_->contains(*layer);
  }
  for (const ModuleNames& names : before_layers_) {
    if (!names.contain(module)) return std::nullopt;
    const auto layer = found_behind([&](const std::string& text) { return *names.contain(text); });
    if (layer) return layers_->contains(*layer);
  }
  return false;
}

std::optional<std::string> AdapterTargets::left_out_by(const std::string& module) const {
  if (excluded_.contain(module).value_or(false)) return "exclude_modules";
  const std::string words = "." + module + ".";
  for (const std::string& name : saved_)
    if (words.find("." + name + ".") != std::string::npos) return "modules_to_save";
  if (!targets_.contain(module).value_or(true)) return "target_modules";
  if (layers_ && !whole_names_.contains(module) && !is_in_layers(module).value_or(true))
    return "layers_to_transform";
  return std::nullopt;
}

bool AdapterTargets::contain(const std::string& module) const {
  const bool is_known = excluded_.contain(module) && (!layers_ || is_in_layers(module));
  return is_known && targets_.contain(module).value_or(false) && !left_out_by(module);
}

}  // namespace moeloom
