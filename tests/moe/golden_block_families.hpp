// What each reference class of a sparse block calls its tensors, and how its router is made up.
#pragma once

#include "moe/moe_layer.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "support/golden.hpp"

namespace moeloom::testing {

enum class ExpertTensors {
  kList,         // experts.N.gate_proj.weight, up_proj, down_proj
  kNumbered,     // experts.N.w1 gate, w3 up, w2 down
  kStacked,      // experts.gate_up_proj [E, 2F, D], down_proj [E, D, F]
  kTransposed,   // experts.gate_up_proj [E, D, 2F], down_proj [E, F, D]: x @ W
  kInterleaved,  // the same with gate and up in columns 0, 2, 4 and 1, 3, 5
  kFused         // input_linear.weight [E, 2F, D], output_linear.weight [E, D, F]
};

struct BlockFamily {
  std::string hf_class;
  ExpertTensors experts = ExpertTensors::kList;
  std::string shared = {};       // of its three projections
  std::string shared_gate = {};  // of the weight [1, D]
  std::string router = "gate";
  std::string correction_bias = "gate.e_score_correction_bias";
  /// What the router is made of beside what all configs say.
  std::function<void(const Document&, RouterSettings&)> compose = [](const Document&, RouterSettings&) {};
  GatedActivation activation = {};
  bool ordered = true;  // chosen experts stand by falling logit; else their order means nothing
  /// Of routed and shared experts' sum.
  std::function<float(const Document&)> output_scale = [](const Document&) { return 1.0f; };
};

inline void softmax_of_chosen(const Document&, RouterSettings& router) {
  router.choose_by = ChooseBy::kLogit;
  router.weigh_by = WeighBy::kSoftmaxOfChosen;
  router.divide = {DivideBy::kNothing};
}
inline void sigmoid_on_input(const Document&, RouterSettings& router) {
  router.choose_by = ChooseBy::kLogit;
  router.weigh_by = WeighBy::kSigmoidOfLogit;
  router.divide = {DivideBy::kNothing};
  router.weight_on_input = true;
}
inline void sigmoid_scores(const Document&, RouterSettings& router) {
  router.score = RouterScore::kSigmoid;
}
inline void sigmoid_plus_a_millionth(const Document&, RouterSettings& router) {
  router.score = RouterScore::kSigmoid;
  if (router.divide.by == DivideBy::kSum) router.divide = {DivideBy::kSumPlus, 1e-6f};
}
inline void best_of_groups(const Document& config, RouterSettings& router) {
  router.group_worth = GroupWorth::kBest;
  router.divide = {DivideBy::kNothing};
  if (config.text_or("topk_method", "greedy") == "greedy") router.num_groups = router.topk_group = 1;
}
inline void divided_by_at_least(const Document& config, RouterSettings& router) {
  router.divide = {DivideBy::kSumAtLeast, static_cast<float>(config.number("moe_norm_min"))};
}
inline void sparsemixer(const Document& config, RouterSettings& router) {
  router.choose_by = ChooseBy::kLogit;
  router.weigh_by = WeighBy::kSoftmaxOfNear;
  router.nearness = static_cast<float>(2 * config.number("router_jitter_noise"));
  router.divide = {DivideBy::kNothing};
}

/// Sigmoids, scaled by the number of that key.
inline std::function<void(const Document&, RouterSettings&)> sigmoids_times(const std::string& key) {
  return [key](const Document& config, RouterSettings& router) {
    router.score = RouterScore::kSigmoid;
    router.scaling_factor = static_cast<float>(config.number_or(key, 1));
    router.logit_cap = static_cast<float>(config.number_or("moe_router_logit_softcapping", 0));
  };
}
inline void cohere(const Document& config, RouterSettings& router) {
  router.choose_by = ChooseBy::kLogit;
  router.weigh_by = WeighBy::kSigmoidOfLogit;
  if (config.text_or("expert_selection_fn", "softmax") == "softmax") softmax_of_chosen(config, router);
}
inline float mean_of_routed_and_shared(const Document& config) {
  const bool is_mean = config.text_or("shared_expert_combination_strategy", "average") == "average";
  return is_mean && config.integer_or("num_shared_experts", 0) > 0 ? 0.5f : 1.0f;
}

inline const std::vector<BlockFamily>& block_families() {
  const std::string gate = "shared_expert_gate";
  static const std::vector<BlockFamily> families = {
      {.hf_class = "Qwen3MoeSparseMoeBlock"},
      {.hf_class = "OlmoeSparseMoeBlock"},
      {.hf_class = "FlexOlmoSparseMoeBlock"},
      {.hf_class = "MixtralSparseMoeBlock", .experts = ExpertTensors::kNumbered},
      {.hf_class = "Qwen3VLMoeTextSparseMoeBlock", .experts = ExpertTensors::kTransposed},
      {.hf_class = "Qwen3OmniMoeThinkerTextSparseMoeBlock"},
      {.hf_class = "Qwen2MoeSparseMoeBlock", .shared = "shared_expert", .shared_gate = gate},
      {.hf_class = "Qwen3NextSparseMoeBlock", .shared = "shared_expert", .shared_gate = gate},
      {.hf_class = "Qwen3OmniMoeTalkerTextSparseMoeBlock", .shared = "shared_expert", .shared_gate = gate},
      {.hf_class = "DeepseekV3MoE", .shared = "shared_experts", .compose = sigmoid_scores, .ordered = false},
      {.hf_class = "Glm4MoeMoE", .shared = "shared_experts", .compose = sigmoid_scores, .ordered = false},
      {.hf_class = "Dots1MoE", .shared = "shared_experts", .compose = sigmoid_scores, .ordered = false},
      {.hf_class = "DeepseekV2MoE", .shared = "shared_experts", .compose = best_of_groups, .ordered = false},
      {.hf_class = "GptOssMLP",
       .experts = ExpertTensors::kInterleaved,
       .router = "router",
       .compose = softmax_of_chosen,
       .activation = {.alpha = 1.702f, .limit = 7, .up_offset = 1}},
      {.hf_class = "GraniteMoeMoE",
       .experts = ExpertTensors::kFused,
       .router = "router.layer",
       .compose = softmax_of_chosen},
      {.hf_class = "Ernie4_5_MoeSparseMoeBlock",
       .shared = "shared_experts",
       .correction_bias = "moe_statics.e_score_correction_bias",
       .compose = divided_by_at_least,
       .ordered = false},
      {.hf_class = "Lfm2MoeSparseMoeBlock",
       .experts = ExpertTensors::kNumbered,
       .correction_bias = "expert_bias",
       .compose = sigmoid_plus_a_millionth,
       .ordered = false},
      {.hf_class = "Llama4TextMoe",
       .experts = ExpertTensors::kTransposed,
       .shared = "shared_expert",
       .router = "router",
       .compose = sigmoid_on_input},
      {.hf_class = "PhimoeSparseMoeBlock", .experts = ExpertTensors::kNumbered, .compose = sparsemixer},
      {.hf_class = "Qwen3_5MoeSparseMoeBlock", .shared = "shared_expert", .shared_gate = gate},
      {.hf_class = "MiniMaxM2SparseMoeBlock",
       .experts = ExpertTensors::kNumbered,
       .correction_bias = "e_score_correction_bias",
       .compose = sigmoid_scores,
       .ordered = false},
      {.hf_class = "Glm4MoeLiteMoE", .shared = "shared_experts", .compose = sigmoid_scores, .ordered = false},
      {.hf_class = "MellumSparseMoeBlock"},
      {.hf_class = "GraniteMoeSWAMoE",
       .experts = ExpertTensors::kStacked,
       .router = "router",
       .compose = softmax_of_chosen},
      {.hf_class = "HunYuanMoEV1Moe", .shared = "shared_mlp", .router = "gate.wg"},
      {.hf_class = "LagunaSparseMoeBlock",
       .shared = "shared_expert",
       .correction_bias = "experts.e_score_correction_bias",
       .compose = sigmoids_times("moe_routed_scaling_factor"),
       .ordered = false},
      {.hf_class = "AfmoeSparseMoeBlock",
       .shared = "shared_experts",
       .router = "router.gate",
       .correction_bias = "expert_bias",
       .compose = sigmoids_times("route_scale"),
       .ordered = false},
      {.hf_class = "ExaoneMoeSparseMoEBlock",
       .shared = "shared_experts",
       .correction_bias = "e_score_correction_bias",
       .compose = sigmoid_scores,
       .ordered = false},
      {.hf_class = "SolarOpenMoE", .shared = "shared_experts", .compose = sigmoid_scores, .ordered = false},
      {.hf_class = "HYV3MoE",
       .shared = "shared_mlp",
       .router = "router.gate",
       .correction_bias = "expert_bias",
       .compose = sigmoids_times("router_scaling_factor"),
       .ordered = false},
      {.hf_class = "MiMoV2FlashMoE", .compose = sigmoid_scores, .ordered = false},
      {.hf_class = "Cohere2MoeSparseMoeBlock",
       .shared = "shared_experts",
       .compose = cohere,
       .output_scale = mean_of_routed_and_shared},
  };
  return families;
}

/// The family of a case; its meta.json may say more behind the class, "Class (training path)".
inline const BlockFamily* family_of(const std::filesystem::path& folder) {
  const std::string named = golden_class(folder);
  const auto& families = block_families();
  const auto found = std::ranges::find(families, named, &BlockFamily::hf_class);
  return found == families.end() ? nullptr : &*found;
}

}  // namespace moeloom::testing
