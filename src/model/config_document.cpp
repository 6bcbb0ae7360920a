// config.json to ModelConfig and back. No key is passed over in silence: it is read, or known to have no
// effect on training, or refused by name.
#include "moeloom/base/errors.hpp"
#include "moeloom/model/config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

namespace moeloom {
namespace {

/// Read by read_sizes and its neighbours.
constexpr std::array kRead = {"model_type",           "hidden_act",
                              "vocab_size",           "hidden_size",
                              "intermediate_size",    "num_hidden_layers",
                              "num_attention_heads",  "num_key_value_heads",
                              "num_experts",          "num_experts_per_tok",
                              "decoder_sparse_step",  "moe_intermediate_size",
                              "mlp_only_layers",      "head_dim",
                              "norm_topk_prob",       "max_position_embeddings",
                              "tie_word_embeddings",  "rms_norm_eps",
                              "output_router_logits", "router_aux_loss_coef",
                              "rope_theta",           "rope_parameters",
                              "initializer_range"};

/// Accepted only where they change nothing; check_refused looks at each.
constexpr std::array kChecked = {"attention_bias", "attention_dropout",    "use_sliding_window",
                                 "sliding_window", "rope_scaling",         "layer_types",
                                 "pad_token_id",   "partial_rotary_factor"};

/// What they say does not reach a training step: who wrote the file, how to generate, what to return.
constexpr std::array kWithoutEffect = {"architectures",
                                       "transformers_version",
                                       "use_cache",
                                       "torch_dtype",
                                       "dtype",
                                       "bos_token_id",
                                       "eos_token_id",
                                       "sep_token_id",
                                       "max_window_layers",
                                       "tokenizer_class",
                                       "return_dict",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "torchscript",
                                       "id2label",
                                       "label2id",
                                       "is_decoder",
                                       "is_encoder_decoder",
                                       "name_or_path",
                                       "chunk_size_feed_forward",
                                       "problem_type",
                                       "finetuning_task",
                                       "task_specific_params",
                                       "attn_implementation"};

bool is_known(const std::string& key) {
  const auto lists = [&](const auto& keys) { return std::ranges::find(keys, key) != keys.end(); };
  return key.starts_with('_') || lists(kRead) || lists(kChecked) || lists(kWithoutEffect);
}

using List = std::vector<std::string>;

void check_unknown(const Document& document, List& violations) {
  std::string unknown;
  for (const std::string& key : document.keys())
    if (!is_known(key)) unknown += (unknown.empty() ? "" : ", ") + key;
  if (!unknown.empty())
    violations.push_back("unknown keys: " + unknown +
                         "; a key that may change the model is not ignored: remove what does not matter");
}

void check_missing(const Document& document, List& violations) {
  List needed = {"model_type",          "vocab_size",          "hidden_size", "num_hidden_layers",
                 "num_attention_heads", "num_key_value_heads", "num_experts"};
  const Index experts = document.integer_or("num_experts", 0);
  if (experts > 0) needed.insert(needed.end(), {"num_experts_per_tok", "moe_intermediate_size"});
  const bool any_dense = experts == 0 || document.integer_or("decoder_sparse_step", 1) > 1 ||
                         (document.has("mlp_only_layers") && !document.integers("mlp_only_layers").empty());
  if (any_dense) needed.push_back("intermediate_size");
  for (const std::string& key : needed)
    if (!document.has(key)) violations.push_back("key " + key + " is missing");
}

void check_names(const Document& document, List& violations) {
  const std::string type = document.text_or("model_type", "qwen3_moe");
  if (type != "qwen3_moe")
    violations.push_back("model_type = \"" + type + "\" is not supported; known: qwen3_moe");
  const std::string act = document.text_or("hidden_act", "silu");
  if (act != "silu") violations.push_back("hidden_act = \"" + act + "\": expert MLPs here are silu only");
}

void check_attention(const Document& document, List& violations) {
  if (document.boolean_or("attention_bias", false))
    violations.push_back("attention_bias = true: attention here has no biases");
  if (document.number_or("attention_dropout", 0) != 0)
    violations.push_back("attention_dropout must be 0: training here has no dropout");
  if (document.boolean_or("use_sliding_window", false) && document.has("sliding_window"))
    violations.push_back("use_sliding_window = true with sliding_window = " +
                         std::to_string(document.integer("sliding_window")) +
                         ": attention here sees all earlier tokens");
  if (!document.has("layer_types")) return;
  for (const std::string& type : document.texts("layer_types"))
    if (type != "full_attention") {
      violations.push_back("layer_types holds \"" + type + "\": attention here is full_attention only");
      return;
    }
}

void check_rope(const Document& document, List& violations) {
  if (document.has("rope_scaling"))
    violations.push_back("rope_scaling is set: rotary embedding here is not scaled; only null is supported");
  if (document.number_or("partial_rotary_factor", 1) != 1)
    violations.push_back("partial_rotary_factor must be 1: the whole head is turned here");
  if (!document.has("rope_parameters")) return;
  const Document rope = document.object("rope_parameters");
  for (const std::string& key : rope.keys())
    if (key != "rope_theta" && key != "rope_type" && key != "partial_rotary_factor")
      violations.push_back("rope_parameters." + key + " is not supported; known: rope_theta, rope_type");
  const std::string type = rope.text_or("rope_type", "default");
  if (type != "default")
    violations.push_back("rope_parameters.rope_type = \"" + type + "\" is not supported; known: default");
  if (rope.number_or("partial_rotary_factor", 1) != 1)
    violations.push_back("rope_parameters.partial_rotary_factor must be 1: the whole head is turned here");
  if (rope.has("rope_theta") && document.has("rope_theta") &&
      rope.number("rope_theta") != document.number("rope_theta"))
    violations.push_back("rope_theta and rope_parameters.rope_theta differ");
}

void check_padding(const Document& document, List& violations) {
  if (document.has("pad_token_id"))
    violations.push_back("pad_token_id = " + std::to_string(document.integer("pad_token_id")) +
                         ": Hugging Face leaves that embedding row without gradient, and here every row "
                         "trains; set the key to null to accept that");
}

void throw_if_any(const List& violations) {
  if (!violations.empty()) throw ConfigError(violations);
}

double rope_theta_of(const Document& document) {
  constexpr double kDefault = 10000.0;
  if (document.has("rope_parameters"))
    return document.object("rope_parameters")
        .number_or("rope_theta", document.number_or("rope_theta", kDefault));
  return document.number_or("rope_theta", kDefault);
}

void read_sizes(const Document& document, ModelConfig& config) {
  config.vocab_size = document.integer("vocab_size");
  config.hidden_size = document.integer("hidden_size");
  config.intermediate_size = document.integer_or("intermediate_size", config.intermediate_size);
  config.moe_intermediate_size = document.integer_or("moe_intermediate_size", config.moe_intermediate_size);
  config.num_hidden_layers = document.integer("num_hidden_layers");
  config.num_attention_heads = document.integer("num_attention_heads");
  config.num_key_value_heads = document.integer("num_key_value_heads");
  config.head_dim =
      document.integer_or("head_dim", config.hidden_size / std::max<Index>(config.num_attention_heads, 1));
  config.num_experts = document.integer("num_experts");
  config.num_experts_per_tok = document.integer_or("num_experts_per_tok", config.num_experts_per_tok);
  config.decoder_sparse_step = document.integer_or("decoder_sparse_step", 1);
  if (document.has("mlp_only_layers")) config.mlp_only_layers = document.integers("mlp_only_layers");
  config.max_position_embeddings =
      document.integer_or("max_position_embeddings", config.max_position_embeddings);
}

/// Fallbacks are those of HF's Qwen3MoeConfig, which are not everywhere ours.
void read_settings(const Document& document, ModelConfig& config) {
  config.norm_topk_prob = document.boolean_or("norm_topk_prob", false);
  config.tie_word_embeddings = document.boolean_or("tie_word_embeddings", false);
  config.output_router_logits = document.boolean_or("output_router_logits", false);
  config.router_aux_loss_coef = document.number_or("router_aux_loss_coef", 0.001);
  config.rms_norm_eps = document.number_or("rms_norm_eps", 1e-6);
  config.rope_theta = rope_theta_of(document);
  config.initializer_range = document.number_or("initializer_range", 0.02);
}

/// What a config made from flags says besides the fields.
Document fresh_document() {
  Document document;
  document.set("architectures", std::vector<std::string>{"Qwen3MoeForCausalLM"});
  document.set("attention_bias", false);
  document.set("attention_dropout", 0.0);
  document.set_null("rope_scaling");
  document.set_null("sliding_window");
  document.set("use_cache", true);
  document.set("use_sliding_window", false);
  return document;
}

void write_rope_theta(double theta, Document& document) {
  if (!document.has("rope_parameters")) return document.set("rope_theta", theta);
  Document rope = document.object("rope_parameters");
  rope.set("rope_theta", theta);
  document.set("rope_parameters", rope);
  if (document.has("rope_theta")) document.set("rope_theta", theta);
}

}  // namespace

ModelConfig ModelConfig::from(const Document& document) {
  List violations;
  check_unknown(document, violations);
  check_missing(document, violations);
  check_names(document, violations);
  check_attention(document, violations);
  check_rope(document, violations);
  check_padding(document, violations);
  throw_if_any(violations);
  ModelConfig config;
  read_sizes(document, config);
  read_settings(document, config);
  config.source = document;
  throw_if_any(config_violations(config));
  return config;
}

ModelConfig ModelConfig::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const Document document = Document::read(path);
  try {
    return from(document);
  } catch (const ConfigError& error) {
    List violations = error.violations();
    for (std::string& violation : violations) violation = path.string() + ": " + violation;
    throw ConfigError(violations);
  }
}

Document ModelConfig::to_document() const {
  Document document = source.keys().empty() ? fresh_document() : source;
  document.set("model_type", model_type);
  document.set("hidden_act", hidden_act);
  document.set("vocab_size", vocab_size);
  document.set("hidden_size", hidden_size);
  document.set("intermediate_size", intermediate_size);
  document.set("moe_intermediate_size", moe_intermediate_size);
  document.set("num_hidden_layers", num_hidden_layers);
  document.set("num_attention_heads", num_attention_heads);
  document.set("num_key_value_heads", num_key_value_heads);
  document.set("head_dim", head_dim);
  document.set("num_experts", num_experts);
  document.set("num_experts_per_tok", num_experts_per_tok);
  document.set("decoder_sparse_step", decoder_sparse_step);
  document.set("mlp_only_layers", mlp_only_layers);
  document.set("max_position_embeddings", max_position_embeddings);
  document.set("norm_topk_prob", norm_topk_prob);
  document.set("tie_word_embeddings", tie_word_embeddings);
  document.set("output_router_logits", output_router_logits);
  document.set("router_aux_loss_coef", router_aux_loss_coef);
  document.set("rms_norm_eps", rms_norm_eps);
  document.set("initializer_range", initializer_range);
  write_rope_theta(rope_theta, document);
  // The weights beside it are written in fp32 whatever they were read from.
  document.set(document.has("torch_dtype") ? "torch_dtype" : "dtype", "float32");
  return document;
}

}  // namespace moeloom
