// config.json to ModelConfig and back. No key is passed over in silence: it is read, or known to have no
// effect on training, or refused by name.
#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
#include <cmath>

#include "hf/config/config_experts.hpp"
#include "hf/config/config_heads.hpp"
#include "hf/config/config_layers.hpp"
#include "hf/config/config_quantization.hpp"
#include "hf/config/config_reader.hpp"
#include "hf/config/config_rope.hpp"
#include "hf/config/config_windows.hpp"

namespace moeloom {
namespace {

using List = std::vector<std::string>;

/// What they say does not reach a training step: who wrote the file, how to generate, what to return.
const List kWithoutEffect = {
    "architectures", "transformers_version", "use_cache", "torch_dtype", "dtype", "bos_token_id",
    "eos_token_id", "sep_token_id", "tokenizer_class", "return_dict", "output_attentions",
    "output_hidden_states", "torchscript", "id2label", "label2id", "is_decoder", "is_encoder_decoder",
    "name_or_path", "chunk_size_feed_forward", "problem_type", "finetuning_task", "task_specific_params",
    "attn_implementation", "auto_map",
    // Of other tasks and of how a class was called, which every config of 4.57 or 5.15 may hold.
    "add_cross_attention", "cross_attention_hidden_size", "decoder_start_token_id", "experts_implementation",
    "num_labels", "prefix", "tf_legacy_loss", "tie_encoder_decoder", "use_bfloat16", "use_return_dict",
    // Of trainers, of other programs and of the hub's page.
    "gradient_checkpointing", "keys_to_ignore_at_inference", "transformers.js_config", "license", "tags",
    "library_name", "pipeline_tag", "base_model", "datasets", "language",
    // Of generation, which transformers 4 wrote here.
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "output_scores", "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens"};

const FixedKey kNoAttentionDropout = {"attention_dropout", 0.0, "training here has no dropout"};
const FixedKey kAlikeLayers = {"per_layer_config", {}, "layers here differ by the family's own keys alone"};

void throw_if_any(const List& violations) {
  if (!violations.empty()) throw ConfigError(violations);
}

const Family& family_of(const Document& document) {
  const std::string type = document.text_or("model_type", "");
  if (const Family* family = find_family(type); family) {
    if (family->refusal.empty()) return *family;
    throw ConfigError({"model_type = \"" + type + "\" is not supported: " + family->refusal +
                       "; known: " + known_families()});
  }
  throw ConfigError({type.empty()
                         ? "key model_type is missing; known: " + known_families()
                         : "model_type = \"" + type + "\" is not supported; known: " + known_families()});
}

/// Cohere2's norms are LayerNorms unless rms_norm_eps is a number.
void read_eps(ConfigReader& reader, const Family& family, ModelConfig& config) {
  const std::string& other = family.layer_norm_eps_key;
  if (!other.empty()) {
    config.layer_norm = !reader.has(family.eps_key);
    config.rms_norm_eps = reader.number_or(other, family.rms_norm_eps);
    if (!config.layer_norm) config.rms_norm_eps = reader.number(family.eps_key);
    return;
  }
  const bool by_other = !family.other_eps_key.empty() && !reader.has(family.eps_key);
  config.rms_norm_eps =
      reader.number_or(by_other ? family.other_eps_key : family.eps_key, family.rms_norm_eps);
}

/// What embeddings, residuals and logits are multiplied by.
void read_multipliers(ConfigReader& reader, const Family& family, ModelConfig& config) {
  if (!family.scaled_embeddings_key.empty() && reader.boolean_or(family.scaled_embeddings_key, false))
    config.embedding_multiplier = std::sqrt(static_cast<double>(config.hidden_size));
  if (family.logit_scale) {
    const double scale = reader.number_or("logit_scale", *family.logit_scale);
    if (!(scale > 0)) reader.refuse("logit_scale = " + std::to_string(scale) + " must be above 0");
    config.logits_scaling = 1 / scale;
  }
  if (family.logit_cap) config.logit_cap = reader.optional_number("final_logit_softcapping").value_or(0);
  if (!family.multipliers) return;
  config.embedding_multiplier = reader.number_or("embedding_multiplier", 1);
  config.residual_multiplier = reader.number_or("residual_multiplier", 1);
  config.logits_scaling = reader.number_or("logits_scaling", 1);
}

/// Of a table with a row a token for each layer (Gemma4), where an absent key is no 0.
void read_per_layer_input(ConfigReader& reader, ModelConfig& config) {
  config.hidden_size_per_layer_input = reader.integer_or("hidden_size_per_layer_input", 256);
  config.vocab_size_per_layer_input = reader.integer_or("vocab_size_per_layer_input", 262144);
}

void read_sizes(ConfigReader& reader, const Family& family, ModelConfig& config) {
  config.vocab_size = reader.integer("vocab_size");
  config.hidden_size = reader.integer("hidden_size");
  config.num_hidden_layers = reader.integer("num_hidden_layers");
  config.num_attention_heads = reader.integer("num_attention_heads");
  config.max_position_embeddings =
      reader.integer_or("max_position_embeddings", family.max_position_embeddings);
  config.tie_word_embeddings = reader.boolean_or("tie_word_embeddings", family.tie_word_embeddings);
  if (!family.tie_key.empty())
    config.tie_word_embeddings = reader.boolean_or(family.tie_key, config.tie_word_embeddings);
  read_eps(reader, family, config);
  config.initializer_range = reader.number_or("initializer_range", 0.02);
  config.hidden_act = reader.text_or(family.activation_key, family.activation);
  if (family.further_layers)
    config.num_nextn_predict_layers = reader.optional_integer("num_nextn_predict_layers", 0).value_or(0);
  if (!family.head_bias_key.empty()) config.head_bias = reader.boolean_or(family.head_bias_key, false);
  if (family.side_by_side) read_per_layer_input(reader, config);
  read_multipliers(reader, family, config);
}

void read_padding(ConfigReader& reader, const Family& family, ModelConfig& config) {
  const bool stated = reader.stated("pad_token_id");
  std::optional<Index> row = reader.optional_integer("pad_token_id", family.pad_token_id);
  if (!row) return;
  if (*row < 0 && config.vocab_size > 0) *row += config.vocab_size;  // as torch counts from the end
  if (*row < 0 || *row >= config.vocab_size)
    return reader.refuse("pad_token_id = " + std::to_string(*row) +
                         (stated ? "" : ", as where the key is absent,") + " is no row of vocab_size = " +
                         std::to_string(config.vocab_size) + "; null means that there is none");
  config.pad_token_id = row;
}

/// q and k are [nope, rope] by head, and every head has its own keys.
void read_latent(ConfigReader& reader, ModelConfig& config) {
  config.q_lora_rank = reader.optional_integer("q_lora_rank", 1536).value_or(0);
  config.kv_lora_rank = reader.integer("kv_lora_rank");
  config.qk_nope_head_dim = reader.integer("qk_nope_head_dim");
  config.qk_rope_head_dim = reader.integer("qk_rope_head_dim");
  config.v_head_dim = reader.integer("v_head_dim");
  if (__builtin_add_overflow(config.qk_nope_head_dim, config.qk_rope_head_dim, &config.head_dim))
    config.head_dim = 0;  // which is refused later
  const auto derived = [&](const char* key, Index value, const char* sum) {
    const Index found = reader.integer_or(key, value);
    if (found != value)
      reader.refuse(std::string(key) + " = " + std::to_string(found) + " must be " + sum + " = " +
                    std::to_string(value));
  };
  derived("head_dim", config.qk_rope_head_dim, "qk_rope_head_dim");
  derived("qk_head_dim", config.head_dim, "qk_nope_head_dim + qk_rope_head_dim");
}

void read_attention(ConfigReader& reader, const Family& family, ModelConfig& config) {
  const Index heads = config.num_attention_heads;
  config.num_key_value_heads =
      reader.optional_integer("num_key_value_heads", family.num_key_value_heads).value_or(heads);
  const Index split = config.hidden_size / std::max<Index>(heads, 1);
  if (family.latent_attention)
    read_latent(reader, config);
  else
    config.head_dim = reader.optional_integer("head_dim", family.head_dim).value_or(split);
  if (!family.bias.key.empty())
    config.attention_bias = reader.boolean_or(family.bias.key, family.bias.fallback);
  if (family.qk_norm_key) config.use_qk_norm = reader.boolean_or("use_qk_norm", *family.qk_norm_key);
  config.score_scale = family.score_scale.value_or(0);
  if (family.query_scalar) config.score_scale = 1 / std::sqrt(reader.number_or("query_pre_attn_scalar", 256));
  if (family.multipliers) {
    config.score_scale = reader.number_or("attention_multiplier", 1);
    if (!(config.score_scale > 0)) reader.refuse("attention_multiplier must be above 0");
  }
  const Index layers = std::clamp<Index>(config.num_hidden_layers, 0, 1 << 16);
  if (family.chunked)
    read_chunks(reader, layers, config);
  else if (family.other_mixer != OtherMixer::kNone)
    read_mixers(reader, family.other_mixer, layers, config);
  else
    config.windows = read_windows(reader, family, layers);
  read_heads(reader, family, layers, config);
}

void read_text(ConfigReader& reader, const Family& family, ModelConfig& config) {
  reader.take_absent(family.absent);
  read_sizes(reader, family, config);
  read_padding(reader, family, config);
  read_attention(reader, family, config);
  read_rope(reader, family, config);
  read_feed_forward(reader, family, config);
  read_rope_layers(reader, family, std::clamp<Index>(config.num_hidden_layers, 0, 1 << 16), config);
  reader.fixed(kNoAttentionDropout);
  if (family.heads_by_layer != HeadsByLayer::kLayerConfig) reader.fixed(kAlikeLayers);
  reader.none("pruned_heads", "every head is computed here");
  read_quantization(reader, family, config.stored);
  for (const FixedKey& key : family.fixed) reader.fixed(key);
  reader.skip(kWithoutEffect);
  reader.skip(family.without_effect);
}

/// Down to the text model's object, through objects whose other keys belong to other towers.
void read_nested(ConfigReader outer, const TextConfigRule& rule, std::size_t depth, const Family& family,
                 ModelConfig& config) {
  ConfigReader inner = outer.object(rule.path[depth]);
  outer.skip(rule.without_effect);
  outer.skip(kWithoutEffect);
  outer.skip({"model_type", "initializer_range", "pad_token_id", "pruned_heads"});
  read_quantization(outer, family, config.stored);
  // 5.15 goes by the object around the text model's, which has the head; 4.57 by the text model's own.
  const bool tied = outer.boolean_or("tie_word_embeddings", family.tie_word_embeddings);
  outer.refuse_the_rest();
  if (depth + 1 < rule.path.size()) return read_nested(std::move(inner), rule, depth + 1, family, config);
  const std::string type = inner.text_or("model_type", rule.model_type);
  if (type != rule.model_type)
    inner.refuse("model_type = \"" + type + "\" must be \"" + rule.model_type + "\"");
  read_text(inner, family, config);
  config.tie_word_embeddings = tied;
  inner.refuse_the_rest();
}

}  // namespace

ModelConfig ModelConfig::from(const Document& document, const std::set<std::string>& ignored) {
  const Family& family = family_of(document);
  ConfigFindings findings{.ignored = ignored};
  ConfigReader reader(document, "", findings);
  ModelConfig config;
  config.ignored_keys = ignored;
  config.model_type = reader.text_or("model_type", "");
  if (family.text_config) {
    read_nested(std::move(reader), *family.text_config, 0, family, config);
  } else {
    read_text(reader, family, config);
    reader.refuse_the_rest();
  }
  config.names = checkpoint_names(family, {});
  config.source = document;
  throw_if_any(findings.all());
  throw_if_any(config_violations(config));
  return config;
}

}  // namespace moeloom
