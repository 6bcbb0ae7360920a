// The table of families, by name.
#include "model/hf/family.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>

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

bool is_carried(const ModelConfig& config, const std::string& tensor) {
  const Family& family = config.family();
  if (matches_any(family.beside, tensor)) return true;
  if (family.text_config && matches_any(family.text_config->towers, tensor)) return true;
  for (Index i = 0; i < config.num_nextn_predict_layers; ++i)
    if (tensor.starts_with(family.prefix.body + "layers." + std::to_string(config.num_hidden_layers + i) +
                           "."))
      return true;
  return false;
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
