#include "hf/adapter_keys.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace moeloom {
namespace {

constexpr std::array kRead = {"peft_type",         "use_dora",      "fan_in_fan_out",
                              "lora_bias",         "bias",          "r",
                              "lora_alpha",        "use_rslora",    "lora_dropout",
                              "rank_pattern",      "alpha_pattern", "init_lora_weights",
                              "target_parameters", "peft_version",  "base_model_name_or_path"};

/// Refused where they say something, with what that means.
const std::map<std::string, std::string> kRefused = {
    {"modules_to_save", "whole modules were trained beside the factors"},
    {"trainable_token_indices", "rows of the embedding were trained beside the factors"},
    {"alora_invocation_tokens", "an activated LoRA adds to the tokens behind its invocation alone"},
    {"use_qalora", "QA-LoRA adds to groups of inputs"},
    {"use_bdlora", "its factors are block diagonal"},
    {"layer_replication", "it makes layers that the model's folder does not have"},
    {"arrow_config", "it mixes several adapters, token by token"},
    {"monteclora_config", "its factors are drawn by a sampler of its own"},
};

/// Of no effect on what the adapter computes, each with its reason.
const std::map<std::string, std::string> kWithoutEffect = {
    {"task_type", "the class that PEFT wraps around the model"},
    {"auto_mapping", "the class of the model that was trained"},
    {"revision", "of the base's repository"},
    {"inference_mode", "whether PEFT goes on training it"},
    {"target_modules", "the names of the tensors say which modules have factors"},
    {"exclude_modules", "the same"},
    {"layers_to_transform", "the same"},
    {"layers_pattern", "the same"},
    {"megatron_config", "how another program splits the products"},
    {"megatron_core", "the same"},
    {"loftq_config", "read by an initialisation that init_lora_weights names"},
    {"eva_config", "the same"},
    {"corda_config", "the same"},
    {"lora_ga_config", "the same"},
    {"ensure_weight_tying", "of tied modules that are saved or adapted, which are refused"},
    {"qalora_group_size", "read where use_qalora is true"},
    {"runtime_config", "where PEFT keeps numbers while it runs"},
    {"velora_config", "what PEFT keeps for its backward"},
    {"merge_weights", "when releases before 0.4 merged"},
};

/// Initialisations that take something out of the base's weights, and put it into the factors.
bool changes_the_base(const std::string& initialisation) {
  return std::ranges::any_of(std::array{"pissa", "olora", "corda", "loftq", "lora_ga"},
                             [&](const char* name) { return initialisation.starts_with(name); });
}

/// In small letters; empty where it is true or false.
std::string initialisation_of(const Document& document) {
  try {
    std::string text = document.text_or("init_lora_weights", "");
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
  } catch (const IoError&) {
    return "";
  }
}

bool is_known(const std::string& key) {
  return std::ranges::find(kRead, key) != kRead.end() || kRefused.contains(key) ||
         kWithoutEffect.contains(key) || key.starts_with("unsloth_");
}

}  // namespace

bool says_nothing(const Document& document, const std::string& key) {
  if (!document.has(key)) return true;
  const auto holds = [](const auto& check) {
    try {
      return check();
    } catch (const IoError&) {
      return false;  // a value of another kind
    }
  };
  if (document.is_list(key)) return holds([&] { return document.texts(key).empty(); });
  return holds([&] { return document.object(key).keys().empty(); }) ||
         holds([&] { return !document.boolean(key); }) || holds([&] { return document.text(key).empty(); });
}

void check_adapter_keys(const Document& document, const std::set<std::string>& ignored,
                        Violations& violations) {
  const auto wants = [&](bool holds, const std::string& key, const std::string& what) {
    violations.unless(holds, "\"" + key + "\": " + what);
  };
  wants(document.text_or("peft_type", "") == "LORA", "peft_type", "only LORA is supported; " + kMergeFirst);
  wants(!document.boolean_or("use_dora", false), "use_dora",
        "magnitudes of DoRA are not supported; " + kMergeFirst);
  wants(!document.boolean_or("fan_in_fan_out", false), "fan_in_fan_out", "weights here are [out, in]");
  wants(!document.boolean_or("lora_bias", false), "lora_bias", "factors here have no biases; " + kMergeFirst);
  wants(document.text_or("bias", "none") == "none", "bias", "only none is supported; " + kMergeFirst);
  const std::string made = initialisation_of(document);
  wants(!changes_the_base(made), "init_lora_weights",
        "\"" + made +
            "\" changed the base's weights too, so these factors do not fit the base in its folder; " +
            kMergeFirst);
  for (const auto& [key, meaning] : kRefused)
    wants(says_nothing(document, key), key, meaning + ", which is not supported; " + kMergeFirst);
  std::set<std::string> unknown;
  for (const std::string& key : document.keys())
    if (!is_known(key) && !says_nothing(document, key) && !ignored.contains(key)) unknown.insert(key);
  std::string all;
  for (const std::set<std::string>& keys : {ignored, unknown})
    for (const std::string& key : keys) all += (all.empty() ? "" : ",") + key;
  for (const std::string& key : unknown)
    wants(false, key,
          "unknown, and it may change what the adapter computes; " + kMergeFirst +
              ", or pass it over with ignored keys = " + all);
}

}  // namespace moeloom
