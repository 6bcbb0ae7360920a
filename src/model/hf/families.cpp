// The table of families, by name.
#include "moeloom/model/hf/family.hpp"

#include <algorithm>

#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

std::vector<Family> all_families() {
  std::vector<Family> all;
  for (auto* rows : {deepseek_families, qwen_families, mixtral_families, hybrid_families, dense_families,
                     refused_families})
    std::ranges::move(rows(), std::back_inserter(all));
  std::ranges::stable_sort(all, {},
                           [](const Family& row) { return std::pair(!row.refusal.empty(), row.model_type); });
  return all;
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> table = all_families();
  return table;
}

const Family* find_family(const std::string& model_type) {
  for (const Family& family : families())
    if (family.model_type == model_type) return &family;
  return nullptr;
}

bool is_of_a_tower(const Family& family, const std::string& tensor) {
  return family.text_config && std::ranges::any_of(family.text_config->towers, [&](const std::string& tower) {
           return matches_glob(tower, tensor);
         });
}

bool stays_fp32(const std::string& tensor) {
  return tensor.ends_with(".e_score_correction_bias") || tensor.ends_with(".expert_bias");
}

std::string known_families() {
  std::string list;
  for (const Family& family : families())
    if (family.refusal.empty()) list += (list.empty() ? "" : ", ") + family.model_type;
  return list;
}

}  // namespace moeloom
