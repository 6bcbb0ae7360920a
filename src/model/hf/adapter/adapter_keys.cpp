#include "hf/adapter/adapter_keys.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

namespace moeloom {
namespace {

constexpr std::array kRead = {"peft_type",
                              "use_dora",
                              "fan_in_fan_out",
                              "lora_bias",
                              "bias",
                              "r",
                              "lora_alpha",
                              "use_rslora",
                              "lora_dropout",
                              "rank_pattern",
                              "alpha_pattern",
                              "init_lora_weights",
                              "target_parameters",
                              "target_modules",
                              "exclude_modules",
                              "layers_to_transform",
                              "layers_pattern",
                              "modules_to_save",
                              "peft_version",
                              "base_model_name_or_path"};

/// Refused where they say something, with what that means.
const std::map<std::string, std::string> kRefused = {
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
    {"fan_in_fan_out", "of layers that are no torch.nn.Linear: for those PEFT sets it to false"},
    {"task_type", "the class that PEFT wraps around the model"},
    {"auto_mapping", "the class of the model that was trained"},
    {"revision", "of the base's repository"},
    {"inference_mode", "whether PEFT goes on training it"},
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

/// Others that leave the base as it is, as true and false do.
bool leaves_the_base(const std::string& initialisation) {
  return std::ranges::count(std::array{"gaussian", "eva", "orthogonal", "mica"}, initialisation) > 0;
}

/// In small letters; none where it is true, false or null.
std::optional<std::string> initialisation_of(const Document& document) {
  const std::string key = "init_lora_weights";
  if (!document.has(key)) return std::nullopt;
  try {
    document.boolean(key);
    return std::nullopt;
  } catch (const IoError&) {
    std::string text = document.text(key);
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
  }
}

void check_initialisation(const Document& document, DoubtfulKeys& doubtful, Violations& violations) {
  const std::optional<std::string> made = initialisation_of(document);
  if (!made || leaves_the_base(*made)) return;
  violations.unless(!changes_the_base(*made),
                    "\"init_lora_weights\": \"" + *made +
                        "\" changed the base's weights too, so these factors do not fit the base in its "
                        "folder; " +
                        kMergeFirst);
  if (!changes_the_base(*made))
    doubtful.refuse("init_lora_weights", "\"" + *made + "\" is unknown, and it may have changed the base");
}

/// Biases and whole modules change what is computed where the file holds their tensors: PEFT leaves those
/// that it does not find as the base has them. With "lora_only" PEFT 0.19 and 0.20 train biases and do not
/// save them.
void check_what_is_beside(const Document& document, const TensorShapes& tensors, bool base_has_biases,
                          Violations& violations) {
  const auto any = [&](const auto& check) {
    return std::ranges::any_of(tensors, [&](const auto& tensor) { return check("." + tensor.first); });
  };
  const auto refuse = [&](const std::string& key, const std::string& what) {
    violations.add("\"" + key + "\": " + what + ", which is not supported; " + kMergeFirst);
  };
  const bool has_biases = any([](const std::string& name) { return name.ends_with(".bias"); });
  const std::string bias = document.text_or("bias", "none");
  if (bias != "none" && has_biases) refuse("bias", "biases were trained beside the factors");
  if (bias == "lora_only" && !has_biases && base_has_biases)
    refuse("bias", "biases were trained beside the factors, and the file has none of them");
  if (document.boolean_or("lora_bias", false) && has_biases) refuse("lora_bias", "the factors have biases");
  if (says_nothing(document, "modules_to_save")) return;
  for (const std::string& module : document.texts("modules_to_save")) {
    const bool is_held = any([&](const std::string& name) {
      return name.find(".lora_") == std::string::npos && name.find("." + module + ".") != std::string::npos;
    });
    if (!is_held) continue;
    refuse("modules_to_save", module + " was trained as a whole beside the factors");
    return;
  }
}

bool is_known(const std::string& key) {
  return std::ranges::find(kRead, key) != kRead.end() || kRefused.contains(key) ||
         kWithoutEffect.contains(key) || key.starts_with("unsloth_");
}

}  // namespace

void DoubtfulKeys::refuse(const std::string& key, const std::string& why) {
  if (!ignored_.contains(key)) refused_[key] = why;
}

void DoubtfulKeys::add_to(Violations& violations) const {
  std::set<std::string> keys = ignored_;
  for (const auto& [key, why] : refused_) keys.insert(key);
  std::string all;
  for (const std::string& key : keys) all += (all.empty() ? "" : ",") + key;
  for (const auto& [key, why] : refused_)
    violations.add("\"" + key + "\": " + why + "; " + kMergeFirst +
                   ", or pass it over with ignored keys = " + all);
}

void check_adapter_keys(const Document& document, const TensorShapes& tensors, bool base_has_biases,
                        DoubtfulKeys& doubtful, Violations& violations) {
  const auto wants = [&](bool holds, const std::string& key, const std::string& what) {
    violations.unless(holds, "\"" + key + "\": " + what);
  };
  wants(document.text_or("peft_type", "") == "LORA", "peft_type", "only LORA is supported; " + kMergeFirst);
  wants(!document.boolean_or("use_dora", false), "use_dora",
        "magnitudes of DoRA are not supported; " + kMergeFirst);
  check_what_is_beside(document, tensors, base_has_biases, violations);
  check_initialisation(document, doubtful, violations);
  for (const auto& [key, meaning] : kRefused)
    wants(says_nothing(document, key), key, meaning + ", which is not supported; " + kMergeFirst);
  for (const std::string& key : document.keys())
    if (!is_known(key) && !says_nothing(document, key))
      doubtful.refuse(key, "unknown, and it may change what the adapter computes");
}

}  // namespace moeloom
