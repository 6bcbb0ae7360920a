#include "moeloom/model/hf/adapter.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "hf/adapter_specs.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kListed = 20;

/// A module with a number in each place where there is one.
std::string generalised(const std::string& module) {
  std::string pattern;
  for (std::size_t begin = 0; begin <= module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string part = module.substr(begin, end - begin);
    const bool is_number =
        !part.empty() && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c) != 0; });
    pattern += (begin == 0 ? "" : "\\.") + (is_number ? std::string("\\d+") : part);
    begin = end + 1;
  }
  return pattern;
}

/// A module that PEFT finds by a pattern or a list of names, or a stack of experts, which it calls a
/// parameter.
struct Adapted {
  std::set<std::string> modules, stacks;
};
Adapted adapted_in(const ModelConfig& config) {
  Adapted adapted;
  for (const AdaptableModule& module : adaptable_modules(config))
    if (config.adapter->modules.contains(module.name))
      (module.parameter.empty() ? adapted.modules : adapted.stacks)
          .insert(module.parameter.empty() ? module.name : module.parameter);
  return adapted;
}

/// One pattern for all of these modules, where it fits no other; else empty.
std::string pattern_of(const std::set<std::string>& modules, const ModelConfig& config) {
  std::set<std::string> patterns;
  for (const std::string& module : modules) patterns.insert(generalised(module));
  for (const AdaptableModule& module : adaptable_modules(config))
    if (!modules.contains(module.name) && patterns.contains(generalised(module.name))) return {};
  std::string joined;
  for (const std::string& pattern : patterns) joined += (joined.empty() ? "" : "|") + pattern;
  return joined;
}

/// How the file calls the module of a factor, and whether it is A; none for another tensor.
std::optional<std::pair<std::string, bool>> factor_in(const std::string& tensor) {
  if (!tensor.starts_with(kPeftPrefix)) return std::nullopt;
  for (const auto& [ending, is_a] : {std::pair(kFactorA, true), std::pair(kFactorB, false)})
    if (tensor.ends_with(ending))
      return std::pair(tensor.substr(kPeftPrefix.size(), tensor.size() - kPeftPrefix.size() - ending.size()),
                       is_a);
  return std::nullopt;
}

bool says_nothing(const Document& document, const std::string& key) {
  if (!document.has(key)) return true;
  if (document.is_list(key)) return document.texts(key).empty();
  return false;
}

/// Keys of adapter_config.json that change what an adapter computes.
void check_document(const Document& document, Violations& violations) {
  const auto wants = [&](bool holds, const std::string& key, const std::string& what) {
    violations.unless(holds, "\"" + key + "\": " + what);
  };
  wants(document.text_or("peft_type", "") == "LORA", "peft_type", "only LORA is supported");
  wants(!document.boolean_or("use_dora", false), "use_dora", "magnitudes of DoRA are not supported");
  wants(!document.boolean_or("fan_in_fan_out", false), "fan_in_fan_out", "weights here are [out, in]");
  wants(!document.boolean_or("lora_bias", false), "lora_bias", "factors here have no biases");
  wants(document.text_or("bias", "none") == "none", "bias", "only none is supported");
  for (const char* key : {"modules_to_save", "trainable_token_indices"})
    wants(says_nothing(document, key), key,
          "only factors of linear modules and stacked experts are supported");
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    wants(!document.has(key) || document.object(key).keys().empty(), key,
          "all modules have the same r and lora_alpha here");
}

/// Names of stacks by the block that "target_parameters" says they are in, or the end of its name.
using StacksOfBlocks = std::map<std::string, std::set<std::string>>;

StacksOfBlocks stacks_named_in(const Document& document) {
  StacksOfBlocks named;
  if (!document.is_list("target_parameters")) return named;
  for (const std::string& parameter : document.texts("target_parameters")) {
    const std::size_t dot = parameter.rfind('.');
    if (dot == std::string::npos) continue;
    const std::string name = parameter.substr(dot + 1);
    if (name != "weight")
      named[parameter.substr(0, dot)].insert(name);  // of a module, which is its own block
  }
  return named;
}

/// The module that a path in an adapter's file means, which is that of path_in_adapter() unless it names a
/// block of experts: then `named` says which of its stacks have factors. Empty: none of them.
std::string module_at(const std::string& path, const std::set<std::string>& paths,
                      const StacksOfBlocks& named) {
  const std::string inner = ".base_layer";
  const bool is_inner = path.ends_with(inner);
  const std::string block = is_inner ? path.substr(0, path.size() - inner.size()) : path;
  std::set<std::string> stacks;
  constexpr std::size_t kDeepest = 64, kStacks = 2;  // a stranger's names may have any number of parts
  std::size_t begin = 0;
  for (std::size_t depth = 0; depth < kDeepest && !named.empty(); ++depth) {
    const auto found = named.find(block.substr(begin));
    if (found != named.end() && found->second.size() > kStacks) return {};
    if (found != named.end())
      for (const std::string& name : found->second) stacks.insert(block + "." + name);
    const std::size_t dot = block.find('.', begin);
    if (dot == std::string::npos) break;
    begin = dot + 1;
  }
  if (stacks.empty()) return path;
  const bool one_of_two = stacks.size() > 1 && !is_inner && !paths.contains(block + inner);
  if (one_of_two || (stacks.size() == 1 && is_inner)) return {};
  for (const std::string& stack : stacks)
    if (path_in_adapter(stack, stacks) == path) return stack;
  return {};
}

}  // namespace

std::vector<AdaptableModule> adaptable_modules(const ModelConfig& config) {
  std::vector<AdaptableModule> modules;
  for (const ParameterSpec& spec : own_parameters(config)) {
    const std::string kind = adapted_kind(spec);
    if (kind.empty()) continue;
    for (const AdaptedRows& part : adapted_rows(spec)) {
      if (part.stack) {
        modules.push_back({part.modules.front(), kind, spec.slices.front().name});
        continue;
      }
      for (const std::string& module : part.modules) modules.push_back({module, kind, ""});
    }
  }
  return modules;
}

AdapterSettings resolve_adapter(const ModelConfig& config, AdapterSettings settings) {
  Violations violations;
  violations.unless_between("r", settings.rank, 1, Index{1} << 16);
  violations.unless_positive("alpha", settings.alpha);
  violations.unless_below_one("dropout", settings.dropout);
  std::vector<bool> meant(settings.targets.size(), false);
  for (const ParameterSpec& spec : own_parameters(config)) {
    const std::string kind = adapted_kind(spec);
    if (kind.empty()) continue;
    for (const AdaptedRows& part : adapted_rows(spec))
      for (std::size_t i = 0; i < settings.targets.size(); ++i) {
        const std::string& target = settings.targets[i];
        const bool fits = target == kind || std::ranges::any_of(part.modules, [&](const std::string& module) {
                            return matches_glob(target, module);
                          });
        if (!fits) continue;
        meant[i] = true;
        settings.modules.insert(part.modules.begin(), part.modules.end());
      }
  }
  for (std::size_t i = 0; i < meant.size(); ++i)
    violations.unless(
        meant[i], "target \"" + settings.targets[i] +
                      "\" means no linear module or stack of experts of this model that can have an adapter; "
                      "valid: attention, mlp, experts, shared, router, or a pattern of names "
                      "as *.q_proj");
  violations.unless(!meant.empty(), "an adapter needs targets");
  violations.throw_if_any();
  return settings;
}

Storage resting_storage(const SafetensorsFolder& folder, const ModelConfig& config) {
  std::set<DType> types;
  for (const ParameterSpec& spec : own_parameters(config)) {
    if (!may_be_half(spec)) continue;
    for (const HfSlice& slice : spec.slices) {
      if (!folder.has(slice.name)) return Storage::kFp32;
      types.insert(folder.info(slice.name).dtype);
    }
  }
  if (types == std::set{DType::kBF16}) return Storage::kBf16;
  return types == std::set{DType::kF16} ? Storage::kF16 : Storage::kFp32;
}

bool holds_adapter(const fs::path& folder) {
  return fs::exists(folder / kAdapterConfigFile);
}

AdapterSettings adapter_settings(const Document& document, const std::set<std::string>& tensors,
                                 const std::string& file) {
  Violations violations;
  check_document(document, violations);
  AdapterSettings settings;
  settings.rank = document.integer("r");
  settings.alpha = document.number("lora_alpha");
  settings.rank_stabilised = document.boolean_or("use_rslora", false);
  settings.base = document.text_or("base_model_name_or_path", "");
  settings.targets.clear();
  violations.unless_between("r", settings.rank, 1, Index{1} << 16);
  settings.dropout = document.number_or("lora_dropout", 0.0);
  violations.unless_positive("lora_alpha", settings.alpha);
  violations.unless_below_one("lora_dropout", settings.dropout);
  std::set<std::string> paths;
  for (const std::string& name : tensors) {
    const auto factor = factor_in(name);
    if (factor) paths.insert(factor->first);
    violations.unless(factor.has_value(), "tensor " + name + " is no factor of a module");
  }
  const StacksOfBlocks named = stacks_named_in(document);
  for (const std::string& path : paths) {
    const std::string module = module_at(path, paths, named);
    if (!module.empty()) settings.modules.insert(module);
    violations.unless(!module.empty(), "the factors of " + path +
                                           " could be those of several stacks of experts that "
                                           "\"target_parameters\" names, or of none");
  }
  violations.unless(!settings.modules.empty(), std::string(kAdapterFile) + " holds no factors");
  if (!violations.empty()) {
    std::vector<std::string> texts = violations.list();
    if (texts.size() > kListed) texts.resize(kListed);
    for (std::string& text : texts) text = file + ": " + text;
    throw ConfigError(std::move(texts), Cause::kData);
  }
  return settings;
}

AdapterSettings read_adapter_settings(const fs::path& folder) {
  const fs::path path = folder / kAdapterConfigFile;
  const SafetensorsFile file(folder / kAdapterFile);
  std::set<std::string> tensors;
  for (const auto& [name, info] : file.tensors()) tensors.insert(name);
  return adapter_settings(Document::read(path), tensors, path.string());
}

Document adapter_document(const ModelConfig& config) {
  const AdapterSettings& settings = *config.adapter;
  Document document;
  document.set("peft_type", "LORA");
  document.set("task_type", "CAUSAL_LM");
  document.set("base_model_name_or_path", settings.base.string());
  document.set("r", settings.rank);
  document.set("lora_alpha", settings.alpha);
  document.set("use_rslora", settings.rank_stabilised);
  document.set("bias", "none");
  document.set("fan_in_fan_out", false);
  document.set("inference_mode", true);
  document.set("init_lora_weights", true);
  document.set_null("modules_to_save");
  const auto [modules, stacks] = adapted_in(config);
  // PEFT drops no inputs of stacks, and refuses to be told to.
  document.set("lora_dropout", stacks.empty() ? settings.dropout : 0.0);
  if (const std::string pattern = pattern_of(modules, config); !pattern.empty())
    document.set("target_modules", pattern);
  else
    document.set("target_modules", std::vector<std::string>(modules.begin(), modules.end()));
  if (!stacks.empty()) {
    document.set("target_parameters", std::vector<std::string>(stacks.begin(), stacks.end()));
    document.set("peft_version", "0.19.1");  // which way round factors of stacks are
  }
  return document;
}

}  // namespace moeloom
