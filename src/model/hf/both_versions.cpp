// One config.json for two versions of transformers: what they call differently stands there under both names.
#include "model/hf/family.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
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

/// One an attention (Gemma3).
Document parameters_by_type(const ModelConfig& config, const Document& text) {
  Document local;
  local.set("rope_type", "default");
  local.set(kTheta, config.window_rope->theta);
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
    text.set(rule.windows->theta_key, config.window_rope->theta);
  if (!text.has(kParameters))
    return text.set(kParameters,
                    rule.windows ? parameters_by_type(config, text) : parameters_of(config, text));
  if (text.has(kScaling)) return;
  const Document rope = text.object(kParameters);
  write_scaling(config, rule.windows && rope.has(kGlobal) ? rope.object(kGlobal) : rope, text);
}

void write_text(const ModelConfig& config, Document& text) {
  const Family& family = config.family();
  if (!family.in_both_versions) return;
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
    for (Document* object : {&outer, &inner})
      if (object->boolean_or(kTied, false) != config.tie_word_embeddings)
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
