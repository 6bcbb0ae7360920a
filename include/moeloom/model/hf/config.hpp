// The shape of a model, as Hugging Face's config.json says it. A value; the same on every rank, no
// collective.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/kernels/elementwise/rope_table.hpp"
#include "moeloom/model/hf/adapter_settings.hpp"
#include "moeloom/model/hf/checkpoint_names.hpp"
#include "moeloom/tensor/dtype.hpp"

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace moeloom {

struct LayerSpec;  // the library's own, as those that follow
struct NormSpec;
struct PerLayerEmbeddingSpec;

/// How layers with a window turn q and k, where that differs from the others.
struct WindowRope {
  double theta = 10000.0;
  double partial_rotary_factor = 1;
  RopeScaling scaling = {};
  bool operator==(const WindowRope&) const = default;
};

/// The key of hash_router in a config.json; transformers does not know it, and would choose experts by score.
inline constexpr const char* kHashRouterKey = "moeloom_hash_router";

/// Field names are config.json's; where two families have different ones, those of Qwen3-MoE. Defaults are
/// for a new model of the caller's own; where a file leaves a key out, its family (model_type) decides.
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
  Index head_dim = 32;  // of q and k
  Index num_experts = 8;
  Index num_experts_per_tok = 2;
  Index decoder_sparse_step = 1;
  std::vector<Index> mlp_only_layers;
  Index max_position_embeddings = 32768;
  bool norm_topk_prob = true;
  bool tie_word_embeddings = false;
  bool output_router_logits = true;    // transformers adds the aux loss only then
  double router_aux_loss_coef = 0.02;  // Training's default; Model has ModelSettings::aux_loss_coef
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double initializer_range = 0.02;

  // What some families say besides; with the defaults it changes nothing.
  bool attention_bias = false;
  bool use_qk_norm = true;  // where the family normalises q and k
  bool mlp_bias = false;    // of experts too
  bool head_bias = false;   // of lm_head, also where its weight is that of the embedding
  RopeScaling rope_scaling;
  double partial_rotary_factor = 1;
  std::optional<WindowRope> window_rope;  // of layers with a window; none: as the others
  std::vector<double> layer_rope_theta;   // one a layer, 0: it does not turn; empty: rope_theta for all
  std::vector<Index> windows;             // one a layer, 0: all earlier tokens; empty: 0 for all
  // One a layer, where layers differ; empty: as the numbers without layer_ say.
  std::vector<Index> layer_heads;
  std::vector<Index> layer_kv_heads;
  std::vector<Index> layer_head_dims;
  std::vector<Index> layer_top_k;  // num_experts_per_tok is the largest of them
  Index value_dim = 0;             // of a head of v; 0: head_dim
  double value_scale = 1;          // v is multiplied by it
  bool keys_are_values = false;    // in layers without a window: there is no v_proj
  Index num_kv_shared_layers = 0;  // the last ones, which read keys and values of an earlier layer
  bool double_wide_mlp = false;    // of those
  bool gate_per_head = false;      // where the family's gate is what a key says
  bool layer_norm = false;         // norms are LayerNorms without a bias, where rms_norm_eps is not there
  Index hidden_size_per_layer_input = 0;  // of embeddings that a layer has of its own; 0: none
  Index vocab_size_per_layer_input = 0;
  double logit_cap = 0;            // of the head's logits; 0: none
  double router_logit_cap = 0;     // of routers' logits; 0: none
  bool sigmoid_of_chosen = false;  // weights are sigmoids of the chosen logits, where the family may say so
  bool shared_average = false;     // routed and shared experts are averaged
  double score_scale = 0;          // of attention's scores; 0: head_dim^-0.5
  std::optional<Index> pad_token_id;  // the look-up of this row trains nothing
  Index q_lora_rank = 0;              // latent attention; 0: q is one projection
  Index kv_lora_rank = 0;
  Index qk_nope_head_dim = 0;
  Index qk_rope_head_dim = 0;
  Index v_head_dim = 0;
  bool rope_interleave = true;
  Index first_k_dense_replace = 0;
  Index n_group = 1;
  Index topk_group = 1;
  double routed_scaling_factor = 1;
  bool correction_bias = true;     // where the family's router has one
  double least_sum = 0;            // weights are divided by their sum, or this if larger
  double router_jitter_noise = 0;  // PhiMoE: half of RouterSettings::nearness
  /// The layers with experts, ascending, where a list or interval says; none: is_sparse() counts them.
  std::optional<std::vector<Index>> sparse_layers;
  double embedding_multiplier = 1;  // Granite's
  double residual_multiplier = 1;
  double logits_scaling = 1;
  std::vector<Index> chunks;  // one a layer: attention stays within so many tokens; 0, empty: it does not
  std::vector<Index> rope_layers;  // one a layer, 0: without rope; empty: 1 for all
  Index floor_scale = 0;           // of Llama 4's temperature; 0: there is none
  double attn_scale = 0;
  std::vector<Index> attention_layers;  // one a layer, 0: the family's other mixer; empty: 1 for all
  Index conv_taps = 0;                  // tokens that a causal convolution sees
  bool conv_bias = false;
  Index linear_num_key_heads = 0;  // of a gated delta net (Yang et al. 2024), as the next three
  Index linear_num_value_heads = 0;
  Index linear_key_head_dim = 0;
  Index linear_value_head_dim = 0;
  bool hash_router = false;                   // kHashRouterKey: experts are chosen by token ids
  Index shared_expert_intermediate_size = 0;  // 0: there is none

  Index num_nextn_predict_layers = 0;  // layers of a file behind the last one, which are not read

  std::optional<AdapterSettings> adapter;  // trained in place of the model's own weights; none: those are

  CheckpointNames names;
  StoredForm stored;  // of the weights in the folder that this was read from; they are written plain
  /// The file this came from, whose other keys are written back unchanged; empty for a new model.
  Document source;
  std::set<std::string> ignored_keys;  // keys that read() was told to pass over
  std::vector<std::string> remarks;    // what read() found in the folder and went by, a line each

  /// Of a layer, from 0: whether it has experts; whether it has attention, not the family's other mixer.
  bool is_sparse(Index layer) const;
  bool is_attention(Index layer) const;
  bool has_experts() const;  // any layer is sparse
  bool has_z_loss() const;   // its routers take a softmax, of which the z loss is made
  Index attention_width() const { return num_attention_heads * head_dim; }
  Index kv_width() const { return num_key_value_heads * head_dim; }
  Index rotary_dim() const;  // elements of a head that turn, in layers without a window
  /// Of a layer.
  Index heads(Index layer) const;
  Index kv_heads(Index layer) const;
  Index head_size(Index layer) const;
  Index window(Index layer) const { return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer)]; }
  Index top_k(Index layer) const;
  bool shares_keys(Index layer) const { return layer >= num_hidden_layers - num_kv_shared_layers; }
  /// Parameters in all, and those that one token uses.
  Index total_parameters() const;
  Index active_parameters() const;

  /// The library's row for model_type; throws ConfigError, with the known ones, if there is none. So does all
  /// that needs it: has_z_loss(), parameters and what follows.
  const Family& family() const;
  /// What the library builds: layers, the norm before the head, one rope table for each entry, the factor of
  /// embeddings.
  LayerSpec layer(Index layer) const;
  NormSpec final_norm() const;
  std::optional<PerLayerEmbeddingSpec> per_layer_embedding() const;
  std::vector<RopeSettings> ropes() const;
  float embedding_scale() const;

  /// Reads `folder`/config.json and, if there are weights, how they are called. Of this rank alone: each rank
  /// reads for itself. Throws IoError for the files, ConfigError for a model that is not supported, naming
  /// each key: what it says and what would run. Keys that begin with _ are kept and not read. A folder with
  /// an adapter (adapter_config.json) is read as the model that it adds to, and the adapter with it.
  /// `ignored`: keys that may be unknown, by name or by path ("text_config.x").
  static ModelConfig read(const std::filesystem::path& folder, const std::set<std::string>& ignored = {});
  /// read() from a config.json that is in memory, without a folder's weights or adapter.
  static ModelConfig from(const Document& document, const std::set<std::string>& ignored = {});
  /// The file this came from with what has changed since, in the words of transformers 4.57 and 5.15; for a
  /// new model what it says beyond its family. Without the quantization_config of FP8, which nothing writes.
  /// What was written is read again: throws ConfigError that names each field which would come back as
  /// another number. Windows, scalings of rope and other fields that are lists or rules in a file have no key
  /// that is written anew; a model with them is read from a file that says them.
  Document updated_source() const;
  /// updated_source() for a folder whose weights have this format (kF32, kBF16 or kF16).
  Document to_document(DType weights = DType::kF32) const;
};

/// Sets the format of the weights (torch_dtype or dtype) wherever `config` says one for the text model: at
/// the top, where it is added if it is missing, and in the objects around the text model's keys. Throws
/// IoError without a model_type.
void set_weights_dtype(Document& config, DType weights);

/// Says in `document` what transformers 4.57 and 5.15 call by different names by both of them, and alike:
/// rope, the number of experts, and in a model of several parts whether its head is tied. Each version takes
/// a default of its own for what it does not find. Families that 4.57 does not have stay as they are.
void write_for_both_versions(const ModelConfig& config, Document& document);

/// What is wrong with the numbers themselves, each with its arithmetic; empty when they fit together. read()
/// and from() ask it; for a config of one's own the caller does.
std::vector<std::string> config_violations(const ModelConfig& config);

}  // namespace moeloom
