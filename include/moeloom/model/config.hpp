// The shape of a model, as Hugging Face's config.json says it.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/io/document.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace moeloom {

/// Field names are config.json's. Defaults are for a model made from flags; where a file leaves a key out,
/// HF's Qwen3MoeConfig decides.
struct ModelConfig {
  std::string model_type = "qwen3_moe";
  std::string hidden_act = "silu";
  Index vocab_size = 256;
  Index hidden_size = 256;
  Index intermediate_size = 1024;     // of the dense MLP layers
  Index moe_intermediate_size = 256;  // of one expert
  Index num_hidden_layers = 4;
  Index num_attention_heads = 8;
  Index num_key_value_heads = 4;
  Index head_dim = 32;
  Index num_experts = 8;
  Index num_experts_per_tok = 2;
  Index decoder_sparse_step = 1;
  std::vector<Index> mlp_only_layers;
  Index max_position_embeddings = 32768;
  bool norm_topk_prob = true;
  bool tie_word_embeddings = false;
  bool output_router_logits = true;  // HF adds the aux loss only then
  double router_aux_loss_coef = 0.001;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double initializer_range = 0.02;
  /// The file this came from, whose other keys are written back unchanged.
  Document source;

  bool is_sparse(Index layer) const;
  bool has_experts() const;  // any layer is sparse
  Index attention_width() const { return num_attention_heads * head_dim; }
  Index kv_width() const { return num_key_value_heads * head_dim; }
  /// Parameters in all, and those that one token uses.
  Index total_parameters() const;
  Index active_parameters() const;

  /// Reads `folder`/config.json. Throws IoError for the file, ConfigError for a model that is not supported,
  /// naming each key: what it says and what would run. Keys that begin with _ are kept and not read.
  static ModelConfig read(const std::filesystem::path& folder);
  static ModelConfig from(const Document& document);
  Document to_document() const;
};

/// What is wrong with the numbers themselves, with the arithmetic; empty when they fit together.
std::vector<std::string> config_violations(const ModelConfig& config);

}  // namespace moeloom
