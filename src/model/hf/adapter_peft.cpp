// Modules whose adapters PEFT itself does not load.
#include "model/hf/adapter.hpp"
#include "model/hf/family.hpp"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "hf/adapter_specs.hpp"

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

}  // namespace

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
  const bool is_list = config.names.experts == ExpertLayout::kList;
  const bool is_unknown = is_one_of({"qwen2_moe", "phimoe", "lfm2_moe", "qwen3_5_moe_text"}, type);
  add(is_unknown || is_one_of({"granitemoe", "gpt_oss", "llama4_text"}, type), "router",
      "with transformers 5");
  add((is_unknown && is_list) || type == "granitemoe", "experts", "with transformers 5");
  // PEFT takes every gate_proj, up_proj and down_proj for one of the experts that transformers 5 stacks.
  const bool alike = rule->experts.gate == ExpertNames().gate && rule->layout == ExpertLayout::kList;
  for (const char* kind : {"mlp", "shared"}) add(alike && !is_unknown, kind, "with transformers 5");
  return lost;
}

}  // namespace moeloom
