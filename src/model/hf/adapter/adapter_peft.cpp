// Modules whose adapters PEFT itself does not load.
#include "model/hf/family.hpp"
#include "model/hf/weights/adapter.hpp"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "hf/parameters/adapter_specs.hpp"

namespace moeloom {
namespace {

/// Kinds of modules with factors.
std::set<std::string> kinds_in(const ModelConfig& config) {
  std::set<std::string> kinds;
  for (const AdaptableModule& module : adaptable_modules(config))
    if (config.adapter->modules.contains(module.name)) kinds.insert(module.kind);
  return kinds;
}

bool is_one_of(std::initializer_list<const char*> names, const std::string& model_type) {
  return std::ranges::find(names, model_type) != names.end();
}

/// Of which PEFT takes every gate_proj, up_proj and down_proj of target_modules for one of the experts that
/// transformers 5 stacks.
bool knows_as_list(const std::string& model_type) {
  return is_one_of({"afmoe", "cohere2_moe", "deepseek_v2", "deepseek_v3", "dots1", "ernie4_5_moe",
                    "exaone_moe", "flex_olmo", "glm4_moe", "glm4_moe_lite", "hunyuan_v1_moe", "mellum",
                    "mixtral", "olmoe", "qwen3_moe", "qwen3_next", "solar_open"},
                   model_type);
}

std::string last_word(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

}  // namespace

std::optional<CheckpointNames> names_in_peft(const ModelConfig& config) {
  const Family& family = config.family();
  if (family.in_both_versions || !family.moe) return std::nullopt;
  CheckpointNames names = config.names;
  const bool is_list = names.experts == ExpertLayout::kList;
  if (is_list && !knows_as_list(config.model_type)) names.experts = ExpertLayout::kStacked;
  if (!memory_names(family, names.block).empty()) names.as_in_memory = true;
  const bool differs =
      names.experts != config.names.experts || names.as_in_memory != config.names.as_in_memory;
  return differs ? std::optional(names) : std::nullopt;
}

bool is_parameter_in_peft(const ModelConfig& config, const AdaptableModule& module) {
  if (config.family().in_both_versions || module.kind == "experts") return false;
  const std::set<std::string> of_experts = {"gate", "gate_proj", "up_proj", "down_proj"};
  return module.kind == "router" ||
         (knows_as_list(config.model_type) && of_experts.contains(last_word(module.name)));
}

std::vector<std::string> lost_in_peft(const ModelConfig& config) {
  std::vector<std::string> lost;
  const std::optional<MoeRule>& rule = config.family().moe;
  if (!rule) return lost;
  const std::string& type = config.model_type;
  const std::set<std::string> kinds = kinds_in(config);
  const auto add = [&](bool holds, const std::string& kind, const std::string& where) {
    if (holds && kinds.contains(kind)) lost.push_back(kind + " (" + where + ")");
  };
  // Where a router is no linear module, PEFT has to know the model.
  add(is_one_of({"deepseek_v3", "glm4_moe", "dots1"}, type), "router", "with transformers 4");
  // Transformers 5 stacks their experts under other names than PEFT looks for.
  const CheckpointNames& names = config.adapter->names ? *config.adapter->names : config.names;
  const bool is_list = names.experts == ExpertLayout::kList;
  if (!config.family().in_both_versions) {  // names_in_peft() and is_parameter_in_peft() see to the rest
    add(is_list && !knows_as_list(type), "experts", "with transformers 5");
    return lost;
  }
  const bool is_unknown = is_one_of({"qwen2_moe", "phimoe", "lfm2_moe"}, type);
  add(is_unknown || is_one_of({"granitemoe", "gpt_oss", "llama4_text"}, type), "router",
      "with transformers 5");
  add((is_unknown && is_list) || type == "granitemoe", "experts", "with transformers 5");
  // PEFT takes every gate_proj, up_proj and down_proj for one of the experts that transformers 5 stacks.
  const bool alike = rule->experts.gate == ExpertNames().gate && rule->layout == ExpertLayout::kList;
  for (const char* kind : {"mlp", "shared"}) add(alike && !is_unknown, kind, "with transformers 5");
  return lost;
}

}  // namespace moeloom
