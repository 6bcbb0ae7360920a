// One config.json for two versions of transformers: what they call differently stands there under both names.
#include "model/hf/family.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
#include <optional>
#include <span>

namespace moeloom {
namespace {

constexpr const char* kTheta = "rope_theta";
constexpr const char* kPartial = "partial_rotary_factor";
constexpr const char* kOriginal = "original_max_position_embeddings";
constexpr const char* kScaling = "rope_scaling";
constexpr const char* kParameters = "rope_parameters";
constexpr const char* kGlobal = "full_attention";
constexpr const char* kLocal = "sliding_attention";
constexpr const char* kTied = "tie_word_embeddings";

bool stated(const Document& document, const std::string& key) {
  return std::ranges::count(document.keys(), key) > 0;
}

std::string type_of(const Document& rope) {
  return rope.text_or("rope_type", rope.text_or("type", "default"));
}

/// The object of 5.15: what rope_scaling says, with the base and the share of a head that turns.
Document parameters_of(const ModelConfig& config, const Document& text) {
  Document rope = text.has(kScaling) ? text.object(kScaling) : Document();
  rope.set("rope_type", type_of(rope));
  rope.set(kTheta, config.rope_theta);
  if (config.family().rope.partial) rope.set(kPartial, config.partial_rotary_factor);
  return rope;
}

/// A config of the caller's own need not have one for layers with a window.
WindowRope window_rope_of(const ModelConfig& config) {
  return config.window_rope.value_or(WindowRope{config.rope_theta, config.partial_rotary_factor, {}});
}

/// One an attention (Gemma3, MiMo-V2).
Document parameters_by_type(const ModelConfig& config, const Document& text) {
  const WindowRope of_windows = window_rope_of(config);
  Document local;
  local.set("rope_type", "default");
  local.set(kTheta, of_windows.theta);
  if (config.family().rope.partial) local.set(kPartial, of_windows.partial_rotary_factor);
  Document rope;
  rope.set(kGlobal, parameters_of(config, text));
  rope.set(kLocal, local);
  return rope;
}

/// rope_scaling of 4.57, whose class of Phi3 takes a type, two lists and no other key, and has the length
/// beside it; that of PhiMoE has the length in it.
Document scaling_of_phi(Document rope, Document& text) {
  if (rope.has(kOriginal) && !stated(text, kOriginal)) text.set(kOriginal, rope.integer(kOriginal));
  if (!rope.has("short_mscale")) rope.erase(kOriginal);
  rope.erase("rope_type");
  rope.set("type", "longrope");
  return rope;
}

/// What 4.57 calls what `rope`, of 5.15, says.
void write_scaling(const ModelConfig& config, Document rope, Document& text) {
  for (const char* key : {kTheta, kPartial}) rope.erase(key);
  if (type_of(rope) == "default" && std::ranges::all_of(rope.keys(), [](const std::string& key) {
        return key == "rope_type" || key == "type";
      }))
    return config.family().rope.stated ? text.set_null(kScaling) : void();  // elsewhere absence says the same
  text.set(kScaling, config.family().rope.longrope ? scaling_of_phi(rope, text) : rope);
}

void write_ropes(const ModelConfig& config, Document& text) {
  const RopeRule& rule = config.family().rope;
  if (!stated(text, kTheta)) text.set(kTheta, config.rope_theta);
  if (rule.partial && config.partial_rotary_factor != *rule.partial && !stated(text, kPartial))
    text.set(kPartial, config.partial_rotary_factor);
  if (rule.windows && !stated(text, rule.windows->theta_key))
    text.set(rule.windows->theta_key, window_rope_of(config).theta);
  if (!text.has(kParameters))
    return text.set(kParameters,
                    rule.windows ? parameters_by_type(config, text) : parameters_of(config, text));
  if (text.has(kScaling)) return;
  const Document rope = text.object(kParameters);
  write_scaling(config, rule.windows && rope.has(kGlobal) ? rope.object(kGlobal) : rope, text);
}

/// What 5.15's class reads of what MiniMax's released files say as rotary_dim; it takes the inner number, and
/// with a scaling the outer one.
void write_rotary_share(const ModelConfig& config, Document& text) {
  if (!text.has("rotary_dim")) return;
  Document rope = text.has(kParameters) ? text.object(kParameters) : parameters_of(config, text);
  rope.set(kPartial, config.partial_rotary_factor);
  text.set(kParameters, rope);
  text.set(kPartial, config.partial_rotary_factor);
}

/// Key and value heads and their width where all full layers have the same (Gemma4): 5.5 knows no
/// per_layer_config, and 5.15 reads either.
void write_global_heads(const ModelConfig& config, Document& text) {
  if (!text.has("per_layer_config")) return;
  std::optional<Index> full;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) {
    const Index first = config.window(layer) > 0 ? -1 : full.value_or(layer);
    if (first >= 0) full = first;
    const Index size = first < 0 ? config.head_dim : config.head_size(first);
    const Index heads =
        first < 0 || !config.keys_are_values ? config.num_key_value_heads : config.kv_heads(first);
    if (config.head_size(layer) != size || config.kv_heads(layer) != heads) return;
  }
  if (!full) return;
  text.set("global_head_dim", config.head_size(*full));
  text.set("num_global_key_value_heads", config.kv_heads(*full));
  text.erase("per_layer_config");
}

void write_types(const std::string& key, Index layers, const auto& type_of_layer, Document& text) {
  if (stated(text, key)) return;
  std::vector<std::string> types;
  for (Index layer = 0; layer < layers; ++layer) types.push_back(type_of_layer(layer));
  text.set(key, types);
}

/// What 5.15's class calls what MiMo-V2's released files say in other words, which it passes over.
void write_released_words(const ModelConfig& config, Document& text) {
  const Family& family = config.family();
  const Index layers = config.num_hidden_layers;
  if (text.has("hybrid_layer_pattern"))
    write_types(
        "layer_types", layers, [&](Index layer) { return config.window(layer) > 0 ? kLocal : kGlobal; },
        text);
  if (text.has("moe_layer_freq") && text.is_list("moe_layer_freq"))
    write_types(
        "mlp_layer_types", layers, [&](Index layer) { return config.is_sparse(layer) ? "sparse" : "dense"; },
        text);
  if (text.has(family.other_eps_key) && !stated(text, family.eps_key))
    text.set(family.eps_key, config.rms_norm_eps);
  const std::optional<WindowRopeRule>& windows = family.rope.windows;
  const bool says_rope = text.has(kTheta) || text.has(kPartial) || (windows && text.has(windows->theta_key));
  if (windows && says_rope && !family.rope.proportional && !text.has(kParameters))
    text.set(kParameters, parameters_by_type(config, text));
}

void write_text(const ModelConfig& config, Document& text) {
  const Family& family = config.family();
  if (!family.in_both_versions) {
    if (family.rope.by_width) write_rotary_share(config, text);
    if (family.heads_by_layer == HeadsByLayer::kLayerConfig) write_global_heads(config, text);
    return write_released_words(config, text);
  }
  write_ropes(config, text);
  if (!family.moe || config.num_experts == 0) return;
  // 4.57 knows the family's own name alone; 5.15 takes it too.
  if (!stated(text, family.moe->experts_key)) text.set(family.moe->experts_key, config.num_experts);
  if (!stated(text, family.moe->top_k_key)) text.set(family.moe->top_k_key, config.num_experts_per_tok);
}

/// The text model's object below `outer`. Whether its head is tied 5.15 reads around it, and 4.57 in it.
void write_nested(const ModelConfig& config, std::span<const std::string> path, Document& outer) {
  Document inner = outer.object(path.front());
  if (path.size() > 1) {
    write_nested(config, path.subspan(1), inner);
  } else {
    write_text(config, inner);
    // Absent it is false in 4.57, and the family's own here.
    for (Document* object : {&outer, &inner})
      if (object->boolean_or(kTied, false) != config.tie_word_embeddings ||
          object->boolean_or(kTied, config.family().tie_word_embeddings) != config.tie_word_embeddings)
        object->set(kTied, config.tie_word_embeddings);
  }
  outer.set(path.front(), inner);
}

}  // namespace

void write_for_both_versions(const ModelConfig& config, Document& document) {
  const std::optional<TextConfigRule>& rule = config.family().text_config;
  if (rule) return write_nested(config, rule->path, document);
  write_text(config, document);
}

}  // namespace moeloom
