// The families of models: one row a model_type, in one table (src/model/families.cpp).
//
// A row says what config.json does not: which keys a family has and what they fall back to (as Hugging Face's
// config classes of 4.57 do), which parts its layers are made of, and what a checkpoint calls the weights.
#pragma once

#include "moeloom/base/glob.hpp"
#include "moeloom/kernels/elementwise/rope_table.hpp"
#include "moeloom/model/hf/checkpoint_names.hpp"
#include "moeloom/model/layer_spec.hpp"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace moeloom {

/// Which projections have a bias, and the key that says so.
struct BiasRule {
  std::string key;        // empty: there is no such key and no bias
  bool fallback = false;  // where the key is absent
  bool of_output = true;  // o_proj too; otherwise q, k and v alone
};

enum class WindowRule {
  kNone,        // every token sees all earlier ones; there are no such keys
  kKey,         // sliding_window, if not null, in all layers (Mistral)
  kFlag,        // sliding_window in all layers if use_sliding_window
  kLayerTypes,  // if use_sliding_window: where layer_types says so, or from max_window_layers on
  kPattern,     // where layer_types says so, or all but each sliding_window_pattern-th layer (Gemma3)
};

struct RopeRule {
  RopePairs pairs = RopePairs::kHalfSplit;
  double theta = 10000.0;
  std::optional<double> partial = {};      // fallback of partial_rotary_factor; none: the whole head turns
  std::optional<double> local_theta = {};  // fallback of rope_local_base_freq, the base of sliding layers
  bool longrope = false;                   // Phi3: "su" and "yarn" are older names of longrope
  bool multimodal = false;                 // mrope_section: for text all three positions are the same
};

/// Names of the norms of a layer, an empty one of which is not there, and of the one behind the last layer.
struct LayerNormNames {
  std::string attention = "input_layernorm";
  std::string attention_output = {};
  std::string feed_forward = "post_attention_layernorm";
  std::string feed_forward_output = {};
  std::string last = "norm";  // in a checkpoint; the parameter is model.norm
};

/// What a checkpoint calls parts of attention.
struct AttentionNames {
  std::string output = "o_proj";
  std::string query_norm = "q_norm";
  std::string key_norm = "k_norm";
};

struct ExpertNames {
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";
};

enum class SparseRule {
  kAll,          // every layer
  kStepAndList,  // decoder_sparse_step, but for mlp_only_layers
  kAfterFirst,   // first_k_dense_replace dense ones, then experts
};

enum class TopkNorm { kAlways, kByKey };

struct SharedExpertRule {
  std::string width_key;        // or, if it counts experts, times moe_intermediate_size
  bool counts_experts = false;  // n_shared_experts
  bool gated = false;           // sigmoid(shared_expert_gate x)
  std::string name = "shared_expert";
};

/// The parts of a router that no key says (router_settings.hpp).
struct RouterRule {
  RouterScore score = RouterScore::kSoftmax;
  ChooseBy choose_by = ChooseBy::kScore;
  GroupWorth group_worth = GroupWorth::kSumOfTwoBest;
  WeighBy weigh_by = WeighBy::kScore;
  Division divide = {};  // where norm_topk_prob says that it is divided
  bool weight_on_input = false;
};

struct MoeRule {
  std::string experts_key = "num_experts";
  std::string width_key = "moe_intermediate_size";
  SparseRule sparse = SparseRule::kAll;
  RouterRule router = {};
  TopkNorm topk_norm = TopkNorm::kByKey;
  bool topk_norm_fallback = false;
  bool grouped = false;  // n_group, topk_group, routed_scaling_factor, e_score_correction_bias
  std::optional<double> aux_loss_fallback = 0.001;  // of router_aux_loss_coef; none: there is no such loss
  std::optional<SharedExpertRule> shared = {};
  std::string block = "mlp";  // "block_sparse_moe" in older Mixtral files
  ExpertNames experts = {};
  bool transposed = false;                    // stacked experts are [E, D, 2F]
  ExpertLayout layout = ExpertLayout::kList;  // where no file says
};

/// A key that may only say what changes nothing: this, or null.
struct FixedKey {
  std::string key;
  std::variant<std::monostate, double, bool, std::string> value;  // monostate: null alone
  std::string why;                                                // what would have to be there
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
  std::string architecture;   // the class that HF loads it with
  std::string refusal = {};   // why it does not run; the rest of the row is then empty
  std::string upcycled = {};  // the family whose layer computes the same with one expert
  std::optional<TextConfigRule> text_config = {};
  FilePrefix prefix = {};

  bool latent_attention = false;
  AttentionNames attention = {};
  bool fused_qkv = false;  // one qkv_proj in the file
  QkNorm qk_norm = QkNorm::kNone;
  BiasRule bias = {};
  WindowRule window = WindowRule::kNone;
  RopeRule rope = {};
  bool query_scalar = false;  // query_pre_attn_scalar^-0.5 scales the scores

  float norm_offset = 0;
  double rms_norm_eps = 1e-6;
  LayerNormNames norms = {};
  bool scaled_embeddings = false;  // times sqrt(hidden_size)

  std::string activation_key = "hidden_act";
  std::string activation = "silu";  // fallback
  bool fused_gate_up = false;       // one gate_up_proj in the file
  bool mlp_bias = false;            // has the key mlp_bias
  std::optional<MoeRule> moe = {};

  std::optional<Index> head_dim = {};             // fallback; none: hidden_size / num_attention_heads
  std::optional<Index> num_key_value_heads = {};  // fallback; none: num_attention_heads
  Index max_position_embeddings = 32768;
  bool tie_word_embeddings = false;
  std::optional<Index> pad_token_id = {};
  std::vector<FixedKey> fixed = {};
  /// Keys of this family that HF's model does not read either.
  std::vector<std::string> without_effect = {};
};

/// The whole table.
const std::vector<Family>& families();
/// Null for a model_type that is not in it.
const Family* find_family(const std::string& model_type);
/// Whether a tensor of a file is of one of the family's other towers.
bool is_of_a_tower(const Family& family, const std::string& tensor);
/// Tensors of a file that stay fp32 whatever the others are rounded to, as HF's _keep_in_fp32_modules_strict
/// says: with its correction bias rounded to bf16, DeepSeek's router would choose other experts.
bool stays_fp32(const std::string& tensor);
/// "deepseek_v3, gemma3_text, ...": those that run.
std::string known_families();

}  // namespace moeloom
