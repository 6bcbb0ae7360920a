// config.json to ModelConfig and back. No key is passed over in silence: it is read, or known to have no
// effect on training, or refused by name.
#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
#include <cmath>

#include "hf/config_layers.hpp"
#include "hf/config_reader.hpp"
#include "hf/config_rope.hpp"
#include "hf/config_windows.hpp"

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
const FixedKey kNotQuantized = {"quantization_config", {}, "weights here are fp32, bf16 or fp16"};
const FixedKey kNotQuantizedByMlx = {"quantization", {}, "weights here are fp32, bf16 or fp16"};
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
  config.rms_norm_eps = reader.number_or(family.eps_key, family.rms_norm_eps);
  config.initializer_range = reader.number_or("initializer_range", 0.02);
  config.hidden_act = reader.text_or(family.activation_key, family.activation);
  if (family.further_layers)
    config.num_nextn_predict_layers = reader.optional_integer("num_nextn_predict_layers", 0).value_or(0);
  if (!family.head_bias_key.empty()) config.head_bias = reader.boolean_or(family.head_bias_key, false);
  if (!family.multipliers) return;
  config.embedding_multiplier = reader.number_or("embedding_multiplier", 1);
  config.residual_multiplier = reader.number_or("residual_multiplier", 1);
  config.logits_scaling = reader.number_or("logits_scaling", 1);
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
}

void read_sparse_layers(ConfigReader& reader, const MoeRule& rule, ModelConfig& config) {
  if (rule.sparse == SparseRule::kAfterFirst)
    config.first_k_dense_replace = reader.integer_or(rule.first_dense_key, rule.first_dense);
  if (rule.sparse == SparseRule::kInterval || rule.sparse == SparseRule::kList)
    return read_sparse_list(reader, rule.sparse, config);
  if (rule.sparse != SparseRule::kStepAndList) return;
  config.decoder_sparse_step = reader.integer_or("decoder_sparse_step", 1);
  config.mlp_only_layers = reader.integers("mlp_only_layers");
  if (std::ssize(config.mlp_only_layers) <= std::max<Index>(config.num_hidden_layers, 0)) return;
  reader.refuse("mlp_only_layers names " + std::to_string(config.mlp_only_layers.size()) + " layers of " +
                std::to_string(config.num_hidden_layers));
  config.mlp_only_layers.clear();  // every layer would look through them
}

void read_groups(ConfigReader& reader, const GroupRule& rule, ModelConfig& config) {
  const std::string method = rule.by_method ? reader.text_or("topk_method", "greedy") : "";
  const Index groups = reader.optional_integer("n_group", rule.groups).value_or(1);
  const Index kept = reader.optional_integer("topk_group", rule.kept).value_or(1);
  if (method == "greedy") return;
  if (rule.by_method && method != "group_limited_greedy")
    reader.unsupported("topk_method", method, "greedy, group_limited_greedy");
  config.n_group = groups;
  config.topk_group = kept;
}

void read_router(ConfigReader& reader, const MoeRule& rule, ModelConfig& config) {
  config.norm_topk_prob =
      rule.topk_norm == TopkNorm::kAlways || reader.boolean_or("norm_topk_prob", rule.topk_norm_fallback);
  if (rule.topk_norm == TopkNorm::kNever) config.norm_topk_prob = false;
  config.output_router_logits = rule.aux_loss_fallback && reader.boolean_or("output_router_logits", false);
  config.router_aux_loss_coef =
      rule.aux_loss_fallback ? reader.number_or("router_aux_loss_coef", *rule.aux_loss_fallback) : 0.0;
  config.hash_router = reader.boolean_or(kHashRouterKey, false);
  if (rule.scaling) config.routed_scaling_factor = reader.number_or("routed_scaling_factor", *rule.scaling);
  if (rule.groups) read_groups(reader, *rule.groups, config);
  if (!rule.corrected_key.empty()) config.correction_bias = reader.boolean_or(rule.corrected_key, true);
  if (!rule.least_sum_key.empty()) config.least_sum = reader.number_or(rule.least_sum_key, 1e-12);
  if (rule.router.weigh_by == WeighBy::kSoftmaxOfNear)
    config.router_jitter_noise = reader.number_or("router_jitter_noise", 0.01);
}

void read_shared_expert(ConfigReader& reader, const SharedExpertRule& rule, ModelConfig& config) {
  const Index experts = rule.counts_experts ? reader.integer_or(rule.width_key, rule.fallback) : 1;
  const Index width = rule.counts_experts ? config.moe_intermediate_size : reader.integer(rule.width_key);
  if (__builtin_mul_overflow(experts, width, &config.shared_expert_intermediate_size))
    config.shared_expert_intermediate_size = 0;
  if (config.shared_expert_intermediate_size < (rule.may_be_none ? 0 : 1))
    reader.refuse(rule.width_key + " must be at least 1: every layer with experts has a shared one");
}

/// The family's name of a number, or another that a version of transformers takes for it, and writes: 4 and 5
/// call one number num_experts and num_local_experts, in turn, and some files have both, which must agree.
std::string key_of(ConfigReader& reader, const std::string& own, std::initializer_list<const char*> others) {
  std::string key = own;
  for (const std::string other : others) {
    if (other == own || !reader.has(other)) continue;
    if (!reader.has(key))
      key = other;
    else if (reader.integer(key) != reader.integer(other))
      reader.refuse(key + " = " + std::to_string(reader.integer(key)) + " contradicts " + other + " = " +
                    std::to_string(reader.integer(other)));
  }
  return key;
}

void read_experts(ConfigReader& reader, const MoeRule& rule, ModelConfig& config) {
  const auto count = [&](const std::string& key) {
    return rule.by_layer ? reader.integer_of_all_layers(key, config.num_hidden_layers) : reader.integer(key);
  };
  config.num_experts = count(key_of(reader, rule.experts_key, {"num_experts", "num_local_experts"}));
  read_sparse_layers(reader, rule, config);
  read_router(reader, rule, config);
  if (config.num_experts > 0) {
    config.num_experts_per_tok = count(key_of(reader, rule.top_k_key, {"num_experts_per_tok"}));
    config.moe_intermediate_size = reader.integer(rule.width_key);
    if (rule.shared) read_shared_expert(reader, *rule.shared, config);
  }
  reader.skip({rule.top_k_key, rule.width_key});
  if (rule.shared) reader.skip({rule.shared->width_key});
}

/// Whether a layer of the stated shape is dense, as far as the keys read so far can say.
bool any_dense(const ModelConfig& config) {
  if (config.decoder_sparse_step < 1) return false;  // told elsewhere
  constexpr Index kMostLayers = Index{1} << 16;      // more are refused later
  const Index layers = std::min(config.num_hidden_layers, kMostLayers);
  for (Index layer = 0; layer < layers; ++layer)
    if (!config.is_sparse(layer)) return true;
  return false;
}

void read_feed_forward(ConfigReader& reader, const Family& family, ModelConfig& config) {
  config.num_experts = 0;
  config.output_router_logits = false;
  config.router_aux_loss_coef = 0;
  if (family.moe) read_experts(reader, *family.moe, config);
  config.intermediate_size = any_dense(config) ? reader.integer(family.width_key)
                                               : reader.optional_integer(family.width_key, 0).value_or(0);
  if (!family.mlp_bias_key.empty()) config.mlp_bias = reader.boolean_or(family.mlp_bias_key, false);
}

void read_quantization(ConfigReader& reader, const Family& family) {
  reader.fixed(kNotQuantizedByMlx);
  if (!family.reads_mxfp4 || !reader.has("quantization_config")) return reader.fixed(kNotQuantized);
  ConfigReader quantization = reader.object("quantization_config");
  const std::string method = quantization.text_or("quant_method", "");
  if (method != "mxfp4") quantization.unsupported("quant_method", method, "mxfp4");
}

void read_text(ConfigReader& reader, const Family& family, ModelConfig& config) {
  read_sizes(reader, family, config);
  read_padding(reader, family, config);
  read_attention(reader, family, config);
  read_rope(reader, family, config);
  read_feed_forward(reader, family, config);
  reader.fixed(kNoAttentionDropout);
  reader.fixed(kAlikeLayers);
  reader.none("pruned_heads", "every head is computed here");
  read_quantization(reader, family);
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
  outer.fixed(kNotQuantized);
  outer.fixed(kNotQuantizedByMlx);
  // 5.15 goes by the object around the text model's, which has the head; 4.57 by the text model's own.
  const bool tied = outer.boolean_or("tie_word_embeddings", false);
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
