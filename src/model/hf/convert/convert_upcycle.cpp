// Sparse upcycling, Komatsuzaki et al. 2023: experts that start as copies of a dense MLP.
#include "model/hf/convert/convert.hpp"
#include "model/hf/family.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>

namespace moeloom {
namespace {

constexpr std::array kDenseParts = {"gate_proj", "up_proj", "down_proj"};
constexpr std::string_view kMlp = ".mlp.";

/// A dense family, and the one that its experts make.
struct Upgrade {
  const Family& dense;
  const Family& sparse;
  std::string part(std::size_t i) const {
    const ExpertNames& names = sparse.moe->experts;
    return std::array{names.gate, names.up, names.down}[i];
  }
};

std::string known_upgrades() {
  std::string known;
  for (const Family& family : families())
    if (!family.upcycled.empty())
      known += (known.empty() ? "" : ", ") + family.model_type + " (to " + family.upcycled + ")";
  return known;
}

Upgrade upgrade_of(const Document& config) {
  const std::string type = config.text("model_type");
  const Family* dense = find_family(type);
  if (dense == nullptr || dense->upcycled.empty())
    throw ConfigError({"model_type \"" + type + "\" cannot be upcycled; known: " + known_upgrades()});
  return {*dense, *find_family(dense->upcycled)};
}

void check_settings(const Upcycling& settings) {
  std::vector<std::string> violations;
  if (settings.experts < 1)
    violations.push_back("experts = " + std::to_string(settings.experts) + " must be at least 1");
  if (settings.top_k < 1 || settings.top_k > std::max<Index>(settings.experts, 1))
    violations.push_back("top-k = " + std::to_string(settings.top_k) +
                         " must lie between 1 and experts = " + std::to_string(settings.experts));
  if (settings.noise < 0) violations.push_back("noise must not be negative");
  if (!violations.empty()) throw ConfigError(violations);
}

/// What the dense layer computes and the sparse family has no words for.
void check_config(const Document& config, const Upgrade& family) {
  std::vector<std::string> violations;
  const std::string ending = " cannot be said in a config.json of " + family.sparse.model_type;
  if (config.boolean_or("mlp_bias", false)) violations.push_back("mlp_bias = true" + ending);
  if (config.text_or("hidden_act", "silu") != "silu")
    violations.push_back("hidden_act = \"" + config.text("hidden_act") + "\": experts are silu");
  const bool is_llama = family.dense.model_type == "llama";
  if (is_llama && config.boolean_or("attention_bias", false))
    violations.push_back("attention_bias = true" + ending);
  if (is_llama && config.integer_or("pretraining_tp", 1) != 1)
    violations.push_back("pretraining_tp other than 1" + ending);
  if (config.boolean_or("use_sliding_window", false) && config.has("sliding_window"))
    violations.push_back("use_sliding_window = true: which layers have windows" + ending);
  if (config.has("layer_types"))
    for (const std::string& type : config.texts("layer_types"))
      if (type != "full_attention") {
        violations.push_back("layer_types holds \"" + type + "\", which" + ending);
        break;
      }
  if (!violations.empty()) throw ConfigError(violations);
}

template <typename Value>
void say(Document& config, const std::string& key, const Value& value) {
  if (std::ranges::count(config.keys(), key) == 0) config.set(key, value);
}

/// Where a key is absent the dense family has its own fallback, and the sparse one may have another.
void say_fallbacks(const Family& dense, Document& config) {
  say(config, "rms_norm_eps", dense.rms_norm_eps);
  say(config, "max_position_embeddings", dense.max_position_embeddings);
  if (dense.head_dim) say(config, "head_dim", *dense.head_dim);
  if (config.has("num_attention_heads"))
    say(config, "num_key_value_heads",
        dense.num_key_value_heads.value_or(config.integer("num_attention_heads")));
  if (!config.has("rope_parameters") || !config.object("rope_parameters").has("rope_theta"))
    say(config, "rope_theta", dense.rope.theta);
}

struct DensePart {
  std::string layer;  // "model.layers.0."
  std::size_t part = 0;
};

std::optional<DensePart> dense_part(const std::string& name) {
  const std::size_t found = name.find(kMlp);
  if (found == std::string::npos) return std::nullopt;
  const std::string tail = name.substr(found + kMlp.size());
  for (std::size_t part = 0; part < kDenseParts.size(); ++part)
    if (tail == std::string(kDenseParts[part]) + ".weight") return DensePart{name.substr(0, found + 1), part};
  throw ConfigError({"tensor " + name + " is no part of a gated MLP without biases"});
}

TensorRecipe expert_copy(const TensorRecipe& dense, const std::string& name, double noise) {
  TensorRecipe copy = dense;
  copy.spec.name = name;
  for (TensorPiece& piece : copy.pieces) {
    piece.deviation = noise;
    piece.stream = name;
  }
  return copy;
}

TensorRecipe new_router(const TensorRecipe& gate, const std::string& name, Index experts, double deviation) {
  if (gate.spec.shape.size() != 2) throw ConfigError({"tensor " + gate.spec.name + " must have two sizes"});
  const Index width = gate.spec.shape[1];
  TensorPiece all;
  if (__builtin_mul_overflow(experts, width, &all.count))
    throw ConfigError({"a router of " + std::to_string(experts) + " experts for tensor " + gate.spec.name +
                       " has more than 2^63 elements"});
  all.deviation = deviation;
  all.stream = name;
  return {{name, gate.spec.dtype, {experts, width}}, {all}};
}

}  // namespace

Recipes upcycled(const Recipes& dense, const Document& config, const Upcycling& settings) {
  check_settings(settings);
  const Upgrade family = upgrade_of(config);
  check_config(config, family);
  Recipes sparse;
  for (const TensorRecipe& recipe : dense) {
    const auto part = dense_part(recipe.spec.name);
    if (!part) {
      sparse.push_back(recipe);
      continue;
    }
    const std::string block = part->layer + family.sparse.moe->block + ".";
    for (Index expert = 0; expert < settings.experts; ++expert)
      sparse.push_back(expert_copy(
          recipe, block + "experts." + std::to_string(expert) + "." + family.part(part->part) + ".weight",
          settings.noise));
    if (part->part == 0)
      sparse.push_back(new_router(recipe, block + "gate.weight", settings.experts,
                                  config.number_or("initializer_range", 0.02)));
  }
  return sparse;
}

Document upcycled_config(const Document& config, const Upcycling& settings) {
  check_settings(settings);
  const Upgrade family = upgrade_of(config);
  check_config(config, family);
  Document sparse = config;
  say_fallbacks(family.dense, sparse);
  for (const char* key : {"layer_types", "mlp_bias", "pretraining_tp"}) sparse.erase(key);
  sparse.set("model_type", family.sparse.model_type);
  sparse.set("architectures", std::vector<std::string>{family.sparse.architecture});
  sparse.set(family.sparse.moe->experts_key, settings.experts);
  sparse.set("num_experts_per_tok", settings.top_k);
  sparse.set("output_router_logits", false);  // with true, transformers' generate() fails in both versions
  sparse.set("router_aux_loss_coef", 0.001);
  if (family.sparse.model_type == "mixtral") {
    sparse.erase("attention_bias");
    if (!config.has("rope_scaling")) sparse.erase("rope_scaling");
    sparse.set("router_jitter_noise", 0.0);
    sparse.set_null("sliding_window");
    return sparse;
  }
  sparse.set("moe_intermediate_size", config.integer("intermediate_size"));
  sparse.set("norm_topk_prob", true);
  sparse.set("decoder_sparse_step", 1);
  sparse.set("mlp_only_layers", std::vector<Index>{});
  return sparse;
}

}  // namespace moeloom
