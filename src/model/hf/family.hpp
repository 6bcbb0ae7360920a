// The families of models: one row a model_type, in one table (src/model/hf/families).
//
// A row says what config.json does not: which keys a family has and what they fall back to (as Hugging Face's
// config classes of 4.57 do), which parts its layers are made of, and what a checkpoint calls the weights.
#pragma once

#include "model/hf/family_rules.hpp"
#include "moeloom/base/glob.hpp"

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace moeloom {

struct ModelConfig;

/// A key that may only say what changes nothing: this, or null unless that says something else.
struct FixedKey {
  std::string key;
  std::variant<std::monostate, double, bool, std::string> value;  // monostate: null alone
  std::string why;                                                // what would have to be there
  bool null_is_other = false;  // HF's class takes a stated null for another value, not for its fallback
};

/// Where a model of several parts keeps the keys of its text model.
struct TextConfigRule {
  std::vector<std::string> path;            // {"text_config"}
  std::string model_type;                   // as that object calls itself
  std::vector<std::string> without_effect;  // keys of the objects around it: other towers, token ids
  NamePatterns towers;                      // tensors of those other towers
};

struct Family {
  std::string model_type;
  std::string architecture;      // the class that HF loads it with
  bool in_both_versions = true;  // of transformers, 4.57 and 5.15
  std::string refusal = {};      // why it does not run; the rest of the row is then empty
  std::string upcycled = {};     // the family whose layer computes the same with one expert
  std::optional<TextConfigRule> text_config = {};
  FilePrefix prefix = {};

  bool latent_attention = false;
  AttentionNames attention = {};
  bool fused_qkv = false;  // one qkv_proj in the file
  QkNorm qk_norm = QkNorm::kNone;
  bool qk_norm_after_rope = false;
  bool qk_norm_weight = true;
  std::optional<bool> qk_norm_key = {};  // fallback of use_qk_norm; none: there is no such key
  BiasRule bias = {};
  WindowRule window = WindowRule::kNone;
  WindowFallbacks windows = {};
  HeadsByLayer heads_by_layer = HeadsByLayer::kNone;
  SinkRule sinks = SinkRule::kNone;
  std::optional<GateRule> gate = {};
  std::optional<Index> value_dim = {};     // fallback of v_head_dim; none: head_dim
  std::optional<double> value_scale = {};  // fallback of attention_value_scale; none: there is no such key
  bool value_norm = false;
  bool lends_keys = false;  // attention_k_eq_v, num_kv_shared_layers, use_double_wide_mlp (Gemma4)
  bool chunked = false;     // chunked_attention | full_attention (Llama 4), with rope or without
  OtherMixer other_mixer = OtherMixer::kNone;
  DeltaNetLayout delta_net = DeltaNetLayout::kByKeyHead;
  RopeRule rope = {};
  bool query_scalar = false;               // query_pre_attn_scalar^-0.5 scales the scores
  std::optional<double> score_scale = {};  // of scores, whatever the head; none: head_dim^-0.5

  NormKind norm_kind = NormKind::kRms;
  std::string layer_norm_eps_key = {};  // where eps_key is null or absent norms are LayerNorms (Cohere2)
  float norm_offset = 0;
  std::string eps_key = "rms_norm_eps";
  std::string other_eps_key = {};  // where that is absent
  double rms_norm_eps = 1e-6;
  LayerNormNames norms = {};
  std::vector<MemoryName> in_memory = {};  // within a layer, beside those of the block of experts
  bool parallel = false;                   // both halves of a layer at once
  bool side_by_side = false;               // an MLP beside the experts, a scalar, embeddings a layer (Gemma4)
  bool scaled_embeddings = false;          // times sqrt(hidden_size)
  std::string scaled_embeddings_key = {};  // that says whether they are
  std::optional<double> logit_scale = {};  // fallback of logit_scale, which logits are multiplied by
  bool logit_cap = false;                  // final_logit_softcapping
  bool multipliers = false;                // of embeddings, scores, residuals and logits (Granite)

  std::string activation_key = "hidden_act";
  std::string activation = "silu";              // fallback
  bool fused_gate_up = false;                   // one gate_up_proj in the file
  std::string width_key = "intermediate_size";  // of dense layers
  std::string other_width_key = {};             // where that is null or absent
  std::string mlp_bias_key = {};                // whether MLPs and experts have biases; empty: they have not
  std::string head_bias_key = {};
  std::optional<MoeRule> moe = {};

  std::optional<Index> head_dim = {};             // fallback; none: hidden_size / num_attention_heads
  std::optional<Index> num_key_value_heads = {};  // fallback; none: num_attention_heads
  Index max_position_embeddings = 32768;
  bool tie_word_embeddings = false;
  std::string tie_key = {};  // an older name of that key, which decides where it is there
  std::optional<Index> pad_token_id = {};
  NamePatterns beside = {};  // tensors that predict further tokens; HF's model does not read them
  /// Such layers stand behind the last one, as model.layers.N from num_hidden_layers on (DeepSeek-V3); some
  /// released folders have more or fewer than num_nextn_predict_layers says.
  bool further_layers = false;
  NamePatterns fp32 = {};  // tensors that stay fp32 beside every correction bias
  std::vector<FixedKey> fixed = {};
  /// What an absent key means, where a fallback above does not say it.
  std::vector<std::pair<std::string, double>> absent = {};
  /// Keys of this family that HF's model does not read either.
  std::vector<std::string> without_effect = {};
};

/// The whole table.
const std::vector<Family>& families();
/// Null for a model_type that is not in it.
const Family* find_family(const std::string& model_type);
/// By which pattern a tensor of a file is of another tower, or of layers that predict further tokens; empty
/// if it is of neither.
std::string carried_by(const ModelConfig& config, const std::string& tensor);
bool is_carried(const ModelConfig& config, const std::string& tensor);
/// Tensors of a file that stay fp32 whatever the others are rounded to, as HF's _keep_in_fp32_modules_strict
/// says: with its correction bias rounded to bf16, DeepSeek's router would choose other experts.
bool stays_fp32(const Family& family, const std::string& tensor);
/// All names within a layer that differ in memory; `block`: around the experts.
std::vector<MemoryName> memory_names(const Family& family, const std::string& block);
/// Of the tensor or module `name` within a layer, and back.
std::string in_memory(const std::vector<MemoryName>& names, const std::string& name);
std::string in_file(const std::vector<MemoryName>& names, const std::string& name);
/// "deepseek_v3, gemma3_text, ...": those that run.
std::string known_families();

}  // namespace moeloom
