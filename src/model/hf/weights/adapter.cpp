#include "model/hf/weights/adapter.hpp"

#include "model/hf/family.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/stored/stored_tensor.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "hf/parameters/adapter_specs.hpp"
#include "hf/stored/stored_names.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr std::array kKinds = {"attention", "mlp", "experts", "shared", "router", "per_layer"};

/// Of a module that PEFT finds by its name empty; else the parameter's name by which it does.
std::string parameter_in_peft(const ModelConfig& config, const AdaptableModule& module) {
  return is_parameter_in_peft(config, module) ? module.name + ".weight" : module.parameter;
}

/// Modules that PEFT finds by a list of names, and parameters, as stacks of experts.
struct Adapted {
  std::set<std::string> modules, parameters;
};
Adapted adapted_in(const ModelConfig& config) {
  Adapted adapted;
  for (const AdaptableModule& module : adaptable_modules(config)) {
    if (!config.adapter->modules.contains(module.name)) continue;
    const std::string parameter = parameter_in_peft(config, module);
    if (parameter.empty())
      adapted.modules.insert(module.name);
    else
      adapted.parameters.insert(parameter);
  }
  return adapted;
}

/// The version of PEFT that has factors of stacks this way round (adapter_reading.cpp).
std::string version_of_stacks(const ModelConfig& config) {
  const MoeRule& rule = *config.family().moe;
  const bool is_turned = config.adapter->turned_stacks;
  const bool differs = rule.transposed && !rule.turned_factors;
  return is_turned == (differs || rule.turned_factors) ? "0.19.1" : "0.18.1";
}

/// r and lora_alpha of modules that have their own, by the names that PEFT matches.
void set_own(const ModelConfig& config, Document& document) {
  const std::map<std::string, OwnRank>& own = config.adapter->own;
  Document ranks, alphas;
  for (const AdaptableModule& module : adaptable_modules(config)) {
    const auto found = own.find(module.name);
    if (found == own.end()) continue;
    const std::string parameter = parameter_in_peft(config, module);
    const std::string& name = parameter.empty() ? module.name : parameter;
    ranks.set(name, found->second.rank);
    alphas.set(name, found->second.alpha);
  }
  document.set("rank_pattern", ranks);
  document.set("alpha_pattern", alphas);
}

/// Whether a target of --lora means these rows of a parameter.
bool means(const std::string& target, const std::string& kind, const AdaptedRows& part) {
  return target == "all" || target == kind ||
         std::ranges::any_of(part.modules,
                             [&](const std::string& module) { return matches_glob(target, module); });
}

/// all and kinds mean what the model has of them, which may be nothing; a pattern was made for it.
bool is_kind(const std::string& target) {
  return target == "all" || std::ranges::find(kKinds, target) != kKinds.end();
}

/// What targets mean, in words of the folder or of the adapter.
class TargetSearch {
 public:
  explicit TargetSearch(NamePatterns targets) : targets_(std::move(targets)) {}

  /// The same parameters, as the folder and as the adapter has them -> false where targets mean a part of
  /// what is one module of the adapter.
  bool find(const Specs& in_folder, const Specs& named) {
    modules.clear();
    bool all_whole = true;
    for (std::size_t i = 0; i < named.size(); ++i) {
      const std::string kind = adapted_kind(named[i]);
      if (kind.empty()) continue;
      kinds.insert(kind);
      const std::vector<AdaptedRows> own = adapted_rows(in_folder[i]);
      for (const AdaptedRows& part : adapted_rows(named[i])) all_whole = add(kind, part, own) && all_whole;
    }
    return all_whole;
  }

  std::set<std::string> modules, kinds, meant;  // meant: targets

 private:
  bool add(const std::string& kind, const AdaptedRows& part, const std::vector<AdaptedRows>& own) {
    Index rows = 0;
    for (const std::string& target : targets_) {
      Index of_target = means(target, kind, part) ? part.rows : 0;
      for (const AdaptedRows& other : own)
        if (of_target < part.rows && other.row >= part.row && other.row < part.row + part.rows &&
            means(target, kind, other))
          of_target += other.rows;
      if (of_target > 0) meant.insert(target);
      rows = std::max(rows, of_target);
    }
    if (rows > 0) modules.insert(part.modules.begin(), part.modules.end());
    return rows == 0 || rows == part.rows;
  }

  NamePatterns targets_;
};

Specs named_by(const AdapterSettings& settings, ModelConfig config) {
  if (settings.names) config.names = *settings.names;
  return own_parameters(std::move(config));
}

std::string list_of(const auto& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text.empty() ? "none" : text;
}

}  // namespace

std::vector<AdaptableModule> adaptable_modules(const ModelConfig& config) {
  std::vector<AdaptableModule> modules;
  for (const ParameterSpec& spec : parameters_of_adapter(config)) {
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
  settings.names = names_in_peft(config);
  TargetSearch search(settings.targets);
  const Specs in_folder = own_parameters(config);
  if (!search.find(in_folder, named_by(settings, config))) {
    settings.names->experts = config.names.experts;
    search.find(in_folder, named_by(settings, config));
  }
  settings.modules.insert(search.modules.begin(), search.modules.end());
  const std::string valid = "; this model has " + list_of(search.kinds) + "; valid: all, " + list_of(kKinds) +
                            ", or a pattern of names as *.q_proj";
  for (const std::string& target : settings.targets)
    violations.unless(search.meant.contains(target) || is_kind(target),
                      "target \"" + target +
                          "\" means no linear module or stack of experts that can have an adapter" + valid);
  if (violations.empty() && settings.modules.empty())
    violations.add("targets " + list_of(settings.targets) + " mean nothing of this model" + valid);
  violations.throw_if_any();
  settings.turned_stacks = config.family().moe && config.family().moe->turned_factors;
  return settings;
}

Storage resting_storage(const SafetensorsFolder& folder, const ModelConfig& config) {
  std::set<DType> types;
  for (const ParameterSpec& spec : own_parameters(config)) {
    if (!may_be_half(spec)) continue;
    for (const HfSlice& slice : spec.slices) {
      const std::string name = stored_name(folder, config, slice.name);
      if (!folder.has(name)) return Storage::kFp32;
      const DType type = folder.info(name).dtype;
      types.insert(is_fp8(type) ? DType::kBF16
                                : type);  // as transformers has it once scales are multiplied in
    }
  }
  if (types == std::set{DType::kBF16}) return Storage::kBf16;
  return types == std::set{DType::kF16} ? Storage::kF16 : Storage::kFp32;
}

bool holds_adapter(const fs::path& folder) {
  return fs::exists(folder / kAdapterConfigFile);
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
  const auto [modules, parameters] = adapted_in(config);
  // PEFT drops no inputs of parameters, and refuses to be told to.
  document.set("lora_dropout", parameters.empty() ? settings.dropout : 0.0);
  // Whole names: of a pattern PEFT 0.20 drops what transformers 5 stacks.
  document.set("target_modules", std::vector<std::string>(modules.begin(), modules.end()));
  if (!settings.own.empty()) set_own(config, document);
  if (!parameters.empty()) {
    document.set("target_parameters", std::vector<std::string>(parameters.begin(), parameters.end()));
    document.set("peft_version", version_of_stacks(config));
  }
  return document;
}

}  // namespace moeloom
