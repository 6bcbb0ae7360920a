// ModelConfig to config.json: the file it came from, with what has changed since.
#include "model/hf/family.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/config.hpp"

#include <cmath>
#include <span>

#include "hf/config/config_differences.hpp"

namespace moeloom {
namespace {

/// What a config made from flags says besides the fields.
Document fresh_document(const Family& family) {
  Document document;
  document.set("architectures", std::vector<std::string>{family.architecture});
  if (family.text_config) return document;  // the others are keys of the text model's object
  document.set("attention_dropout", 0.0);
  document.set_null("rope_scaling");
  document.set("use_cache", true);
  if (family.window != WindowRule::kNone) document.set_null("sliding_window");
  if (family.window == WindowRule::kFlag) document.set("use_sliding_window", false);
  return document;
}

void write_rope_theta(double theta, Document& document) {
  if (!document.has("rope_parameters")) return document.set("rope_theta", theta);
  Document rope = document.object("rope_parameters");
  rope.set("rope_theta", theta);
  document.set("rope_parameters", rope);
  if (document.has("rope_theta")) document.set("rope_theta", theta);
}

/// Writes fields that are not as they were.
class Writer {
 public:
  Writer(const ModelConfig& config, const ModelConfig* before, Document& document)
      : config_(config), before_(before), document_(document) {}

  template <class Value>
  void put(const std::string& key, Value ModelConfig::*field) {
    if (changed(field)) document_.set(key, config_.*field);
  }
  /// An empty key is none of the family's.
  template <class Value>
  void put_if_known(const std::string& key, Value ModelConfig::*field) {
    if (!key.empty()) put(key, field);
  }
  template <class Value>
  bool changed(Value ModelConfig::*field) const {
    return !before_ || config_.*field != before_->*field;
  }

 private:
  const ModelConfig& config_;
  const ModelConfig* before_;
  Document& document_;
};

/// In a file as a number of experts.
void write_shared_experts(const ModelConfig& config, const Writer& writer, const std::string& key,
                          Document& document) {
  const Index width = config.moe_intermediate_size;
  const bool changed = writer.changed(&ModelConfig::shared_expert_intermediate_size) ||
                       writer.changed(&ModelConfig::moe_intermediate_size);
  if (changed && width > 0 && config.shared_expert_intermediate_size % width == 0)
    document.set(key, config.shared_expert_intermediate_size / width);
}

void write_experts(const ModelConfig& config, Writer& writer, const MoeRule& rule, Document& document) {
  writer.put(rule.width_key, &ModelConfig::moe_intermediate_size);
  writer.put(rule.experts_key, &ModelConfig::num_experts);
  writer.put(rule.top_k_key, &ModelConfig::num_experts_per_tok);
  if (rule.sparse == SparseRule::kStepAndList) {
    writer.put("decoder_sparse_step", &ModelConfig::decoder_sparse_step);
    writer.put("mlp_only_layers", &ModelConfig::mlp_only_layers);
  }
  if (rule.sparse == SparseRule::kAfterFirst)
    writer.put(rule.first_dense_key, &ModelConfig::first_k_dense_replace);
  if (rule.topk_norm == TopkNorm::kByKey) writer.put("norm_topk_prob", &ModelConfig::norm_topk_prob);
  if (rule.aux_loss_fallback) {
    writer.put("output_router_logits", &ModelConfig::output_router_logits);
    writer.put("router_aux_loss_coef", &ModelConfig::router_aux_loss_coef);
  }
  if (rule.groups) {
    writer.put("n_group", &ModelConfig::n_group);
    writer.put("topk_group", &ModelConfig::topk_group);
  }
  if (rule.scaling) writer.put(rule.scaling_key, &ModelConfig::routed_scaling_factor);
  writer.put_if_known(rule.cap_key, &ModelConfig::router_logit_cap);
  writer.put_if_known(rule.corrected_key, &ModelConfig::correction_bias);
  writer.put_if_known(rule.least_sum_key, &ModelConfig::least_sum);
  if (rule.router.weigh_by == WeighBy::kSoftmaxOfNear)
    writer.put("router_jitter_noise", &ModelConfig::router_jitter_noise);
  if (!rule.shared) return;
  if (rule.shared->counts_experts)
    return write_shared_experts(config, writer, rule.shared->width_key, document);
  writer.put(rule.shared->width_key, &ModelConfig::shared_expert_intermediate_size);
}

void write_padding(const ModelConfig& config, const ModelConfig* before, Document& document) {
  if (config.pad_token_id == (before ? before->pad_token_id : config.family().pad_token_id)) return;
  if (config.pad_token_id) return document.set("pad_token_id", *config.pad_token_id);
  document.set_null("pad_token_id");
}

/// Without a rank queries are one projection, which HF takes from null alone.
void write_latent(const ModelConfig& config, Writer& writer, Document& document) {
  writer.put("q_lora_rank", &ModelConfig::q_lora_rank);
  if (config.q_lora_rank == 0 && writer.changed(&ModelConfig::q_lora_rank)) document.set_null("q_lora_rank");
  writer.put("kv_lora_rank", &ModelConfig::kv_lora_rank);
  writer.put("qk_nope_head_dim", &ModelConfig::qk_nope_head_dim);
  writer.put("qk_rope_head_dim", &ModelConfig::qk_rope_head_dim);
  writer.put("v_head_dim", &ModelConfig::v_head_dim);
}

void write_multipliers(const ModelConfig& config, Writer& writer, Document& document) {
  writer.put("embedding_multiplier", &ModelConfig::embedding_multiplier);
  writer.put("residual_multiplier", &ModelConfig::residual_multiplier);
  writer.put("logits_scaling", &ModelConfig::logits_scaling);
  if (!writer.changed(&ModelConfig::score_scale)) return;
  const double of_head = 1 / std::sqrt(static_cast<double>(config.head_dim));
  document.set("attention_multiplier", config.score_scale > 0 ? config.score_scale : of_head);
}

void write_delta_net(Writer& writer) {
  writer.put("linear_conv_kernel_dim", &ModelConfig::conv_taps);
  writer.put("linear_num_key_heads", &ModelConfig::linear_num_key_heads);
  writer.put("linear_num_value_heads", &ModelConfig::linear_num_value_heads);
  writer.put("linear_key_head_dim", &ModelConfig::linear_key_head_dim);
  writer.put("linear_value_head_dim", &ModelConfig::linear_value_head_dim);
}

void write_text(const ModelConfig& config, const ModelConfig* before, Document& document) {
  const Family& family = config.family();
  Writer writer(config, before, document);
  writer.put(family.activation_key, &ModelConfig::hidden_act);
  writer.put("vocab_size", &ModelConfig::vocab_size);
  writer.put("hidden_size", &ModelConfig::hidden_size);
  if (!family.moe || family.moe->width_key != family.width_key)
    writer.put(family.width_key, &ModelConfig::intermediate_size);
  writer.put("num_hidden_layers", &ModelConfig::num_hidden_layers);
  writer.put("num_attention_heads", &ModelConfig::num_attention_heads);
  writer.put("num_key_value_heads", &ModelConfig::num_key_value_heads);
  if (family.latent_attention)
    write_latent(config, writer, document);
  else
    writer.put("head_dim", &ModelConfig::head_dim);
  if (family.multipliers) write_multipliers(config, writer, document);
  if (family.other_mixer == OtherMixer::kDeltaNet) write_delta_net(writer);
  write_padding(config, before, document);
  if (!family.bias.key.empty()) writer.put(family.bias.key, &ModelConfig::attention_bias);
  if (family.qk_norm_key) writer.put("use_qk_norm", &ModelConfig::use_qk_norm);
  if (config.hash_router || document.has(kHashRouterKey))
    writer.put(kHashRouterKey, &ModelConfig::hash_router);
  if (!family.mlp_bias_key.empty()) writer.put(family.mlp_bias_key, &ModelConfig::mlp_bias);
  if (family.moe) write_experts(config, writer, *family.moe, document);
  writer.put("max_position_embeddings", &ModelConfig::max_position_embeddings);
  writer.put("tie_word_embeddings", &ModelConfig::tie_word_embeddings);
  if (document.has(family.tie_key)) writer.put(family.tie_key, &ModelConfig::tie_word_embeddings);
  writer.put(family.eps_key, &ModelConfig::rms_norm_eps);
  writer.put("initializer_range", &ModelConfig::initializer_range);
  if (writer.changed(&ModelConfig::rope_theta)) write_rope_theta(config.rope_theta, document);
}

std::string text_of(DType weights) {
  return weights == DType::kBF16 ? "bfloat16" : weights == DType::kF16 ? "float16" : "float32";
}

/// Whether the key was there.
bool replace_dtype(Document& document, const std::string& dtype) {
  bool replaced = false;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!document.has(key)) continue;
    document.set(key, dtype);
    replaced = true;
  }
  return replaced;
}

void replace_nested_dtype(Document& document, std::span<const std::string> path, const std::string& dtype) {
  if (path.empty() || !document.has(path.front())) return;
  Document inner = document.object(path.front());
  replace_dtype(inner, dtype);
  replace_nested_dtype(inner, path.subspan(1), dtype);
  document.set(path.front(), inner);
}

/// The text model's object at `depth` of the path, and those around it.
void write_nested(const ModelConfig& config, const ModelConfig* before, const TextConfigRule& rule,
                  std::size_t depth, Document& document) {
  if (depth == rule.path.size()) return write_text(config, before, document);
  const std::string& key = rule.path[depth];
  Document inner = document.has(key) ? document.object(key) : Document();
  write_nested(config, before, rule, depth + 1, inner);
  document.set(key, inner);
}

/// Here and in the objects along the path.
void erase_quantization(Document& document, std::span<const std::string> path) {
  document.erase("quantization_config");
  if (path.empty() || !document.has(path.front())) return;
  Document inner = document.object(path.front());
  erase_quantization(inner, path.subspan(1));
  document.set(path.front(), inner);
}

void erase_quantization(Document& document, const Family& family) {
  erase_quantization(document, family.text_config ? family.text_config->path : std::vector<std::string>());
}

/// Read again, the document must be of this model.
void require_said(const ModelConfig& config, const Document& document) {
  std::vector<std::string> violations;
  const auto unsaid = [&](const std::string& text) {
    violations.push_back("a config.json of " + config.model_type + " would not say this model: " + text);
  };
  try {
    for (const std::string& field :
         differing_fields(config, ModelConfig::from(document, config.ignored_keys)))
      unsaid(field + " would be read as another");
  } catch (const ConfigError& error) {
    for (const std::string& text : error.violations()) unsaid(text);
  }
  if (!violations.empty()) throw ConfigError(violations);
}

}  // namespace

void set_weights_dtype(Document& config, DType weights) {
  const std::string dtype = text_of(weights);
  if (!replace_dtype(config, dtype)) config.set("dtype", dtype);
  const Family* family = find_family(config.text("model_type"));
  if (family != nullptr && family->text_config)
    replace_nested_dtype(config, family->text_config->path, dtype);
}

Document ModelConfig::updated_source() const {
  const bool fresh = source.keys().empty();
  const Family& row = family();
  Document document = fresh ? fresh_document(row) : source;
  const ModelConfig before = fresh ? ModelConfig() : from(source, ignored_keys);
  if (fresh || before.model_type != model_type) document.set("model_type", model_type);
  if (row.text_config)
    write_nested(*this, fresh ? nullptr : &before, *row.text_config, 0, document);
  else
    write_text(*this, fresh ? nullptr : &before, document);
  write_for_both_versions(*this, document);
  if (stored.as == StoredAs::kFp8) erase_quantization(document, row);
  // Where nothing has changed the file says what it said.
  if (fresh || !differing_fields(*this, before).empty()) require_said(*this, document);
  return document;
}

Document ModelConfig::to_document(DType weights) const {
  Document document = updated_source();
  if (stored.as != StoredAs::kPlain) erase_quantization(document, family());
  set_weights_dtype(document, weights);
  return document;
}

}  // namespace moeloom
