// The table of families, by name.
#include "model/hf/family.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
#include <charconv>

#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

std::vector<Family> all_families() {
  std::vector<Family> all;
  for (auto* rows : {deepseek_families, qwen_families, mixtral_families, further_families, hybrid_families,
                     sigmoid_families, windowed_families, gemma4_families, dense_families, refused_families})
    std::ranges::move(rows(), std::back_inserter(all));
  std::ranges::stable_sort(all, {},
                           [](const Family& row) { return std::pair(!row.refusal.empty(), row.model_type); });
  return all;
}

/// 3 of "model.layers.3.mlp.gate.weight".
std::optional<Index> layer_of(const Family& family, const std::string& tensor) {
  const std::string before = family.prefix.body + "layers.";
  if (!tensor.starts_with(before)) return std::nullopt;
  Index layer = 0;
  const char* const last = tensor.data() + tensor.size();
  const auto [end, error] = std::from_chars(tensor.data() + before.size(), last, layer);
  return error == std::errc() && end != last && *end == '.' ? std::optional(layer) : std::nullopt;
}

}  // namespace

Family inside(Family text, const Outer& outer, const std::vector<std::string>& path,
              const std::vector<std::string>& without_effect, const NamePatterns& towers) {
  text.text_config = TextConfigRule{path, text.model_type, without_effect, towers};
  text.model_type = outer.model_type;
  text.architecture = outer.architecture;
  text.prefix = outer.prefix;
  return text;
}

const std::vector<Family>& families() {
  static const std::vector<Family> table = all_families();
  return table;
}

const Family* find_family(const std::string& model_type) {
  for (const Family& family : families())
    if (family.model_type == model_type) return &family;
  return nullptr;
}

std::string carried_by(const ModelConfig& config, const std::string& tensor) {
  const Family& family = config.family();
  for (const std::string& pattern : family.beside)
    if (matches_glob(pattern, tensor)) return pattern;
  if (family.text_config)
    for (const std::string& pattern : family.text_config->towers)
      if (matches_glob(pattern, tensor)) return pattern;
  if (!family.further_layers) return "";
  const std::optional<Index> layer = layer_of(family, tensor);
  const bool is_behind = layer && *layer >= config.num_hidden_layers;
  return is_behind ? family.prefix.body + "layers." + std::to_string(*layer) + ".*" : "";
}

bool is_carried(const ModelConfig& config, const std::string& tensor) {
  return !carried_by(config, tensor).empty();
}

bool stays_fp32(const Family& family, const std::string& tensor) {
  return tensor.ends_with(".e_score_correction_bias") || tensor.ends_with(".expert_bias") ||
         matches_any(family.fp32, tensor);
}

std::string known_families() {
  std::string list;
  for (const Family& family : families())
    if (family.refusal.empty()) list += (list.empty() ? "" : ", ") + family.model_type;
  return list;
}

}  // namespace moeloom
