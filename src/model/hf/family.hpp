// The families of models: one row a model_type, in one table (src/model/hf/families).
//
// A row says what config.json does not: which keys a family has and what they fall back to (as Hugging Face's
// config classes of 4.57 do), which parts its layers are made of, and what a checkpoint calls the weights.
#pragma once

#include "model/parts/layer_spec.hpp"
#include "moeloom/base/glob.hpp"
#include "moeloom/kernels/elementwise/rope_table.hpp"
#include "moeloom/model/hf/checkpoint_names.hpp"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace moeloom {

struct ModelConfig;

/// Which projections have a bias, and the key that says so.
struct BiasRule {
  std::string key;        // empty: there is no such key and no bias
  bool fallback = false;  // where the key is absent
  bool of_output = true;  // o_proj too; otherwise q, k and v alone
};

enum class WindowRule {
  kNone,       // every token sees all earlier ones; there are no such keys
  kKey,        // sliding_window, if not null, in all layers (Mistral)
  kFlag,       // sliding_window in all layers if use_sliding_window
  kEvenBelow,  // if use_sliding_window: where layer_types says so, or even layers below max_window_layers; so
               // 5.15 has Qwen2-MoE, and 4.57 windows in all layers
  kLayerTypes,  // if use_sliding_window: where layer_types says so, or from max_window_layers on
  kFromLayer,   // the same without that flag (dots1)
  kAlternate,   // where layer_types says so, or every second layer from the first on (gpt_oss)
  kPattern,     // where layer_types says so, or all but each sliding_window_pattern-th layer (Gemma3)
};

struct RopeRule {
  RopePairs pairs = RopePairs::kHalfSplit;
  double theta = 10000.0;
  std::optional<double> partial = {};      // fallback of partial_rotary_factor; none: the whole head turns
  std::optional<double> local_theta = {};  // fallback of rope_local_base_freq, the base of sliding layers
  bool longrope = false;                   // Phi3: "su" and "yarn" are older names of longrope
  bool mscales = false;                    // longrope: short_mscale and long_mscale (PhiMoE)
  bool stated = false;                     // rope_scaling must be there, if only as null
  bool yarn_scales_scores = true;          // of latent attention, by mscale_all_dim
  bool ntk_alpha = false;                  // "dynamic" with an alpha (HunYuan)
  bool by_width = false;                   // rotary_dim says how much of the head turns (MiniMax)
  bool multimodal = false;                 // mrope_section: for text all three positions are the same
};

/// What mixes tokens in layers of which layer_types says so; attention in the others.
enum class OtherMixer {
  kNone,
  kShortConv,  // "conv" (LFM2)
  kDeltaNet,   // "linear_attention", or all but each full_attention_interval-th (Qwen3-Next)
};

/// How a file keeps what a gated delta net projects.
enum class DeltaNetLayout {
  kByKeyHead,  // in_proj_qkvz and in_proj_ba, of each key head its q, k, v, z; its b, a
  kByPart,     // in_proj_qkv, in_proj_z, in_proj_b, in_proj_a
};

/// Names of the norms of a layer, an empty one of which is not there, and of the one behind the last layer.
struct LayerNormNames {
  std::string mixer = "input_layernorm";
  std::string mixer_output = {};
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

/// Of tensors that all experts share, within the block; biases of them are [E, 2F] and [E, D].
struct StackNames {
  std::string gate_up = "experts.gate_up_proj";
  std::string down = "experts.down_proj";
  std::string gate_up_bias = "experts.gate_up_proj_bias";
  std::string down_bias = "experts.down_proj_bias";
};

/// Of the router's tensors, within the block.
struct RouterNames {
  std::string weight = "gate.weight";
  std::string bias = "gate.bias";
  std::string correction_bias = "gate.e_score_correction_bias";
  bool correction_bias_is_row = false;  // [1, E]
};

enum class SparseRule {
  kAll,          // every layer
  kStepAndList,  // decoder_sparse_step, but for mlp_only_layers
  kAfterFirst,   // first_k_dense_replace dense ones, then experts
  kInterval,     // each moe_layer_interval-th of moe_layer_start_index..moe_layer_end_index (Ernie 4.5)
  kList,         // moe_layers, or each interleave_moe_layer_step-th (Llama 4)
};

/// Whether weights are divided. kNever: norm_topk_prob may stand there, HF does not read it.
enum class TopkNorm { kAlways, kByKey, kNever };

/// Fallbacks of n_group and topk_group.
struct GroupRule {
  Index groups = 8;
  Index kept = 4;
  bool by_method = false;  // only where topk_method says group_limited_greedy, not greedy
};

struct SharedExpertRule {
  std::string width_key;        // or, if it counts experts, times moe_intermediate_size
  bool counts_experts = false;  // n_shared_experts
  Index fallback = 1;           // of their number
  bool may_be_none = false;     // of which there may be 0
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
  BalanceBy balance_by = BalanceBy::kChoice;
  bool weight_on_input = false;
};

/// What transformers 5 calls some of these in memory, and in a file that
/// save_pretrained(save_original_format=False) wrote. Empty: the same.
struct MemoryNames {
  std::string router = {};
  std::string correction_bias = {};
  bool own_stacks = false;  // it has StackNames' defaults for them
};

struct MoeRule {
  std::string experts_key = "num_experts";
  std::string top_k_key = "num_experts_per_tok";
  std::string width_key = "moe_intermediate_size";
  bool by_layer = false;  // those two may be lists with an entry a layer, all equal (HunYuan)
  SparseRule sparse = SparseRule::kAll;
  RouterRule router = {};
  TopkNorm topk_norm = TopkNorm::kByKey;
  bool topk_norm_fallback = false;
  std::string first_dense_key = "first_k_dense_replace";
  Index first_dense = 3;           // its fallback
  std::string least_sum_key = {};  // of Division::number, the least sum that weights are divided by
  std::optional<GroupRule> groups = {};
  std::optional<double> scaling = {};  // fallback of routed_scaling_factor; none: there is no such key
  bool corrected = false;              // a correction bias of the choice
  std::string corrected_key = {};      // that says whether there is one, true where it is absent
  GatedActivation activation = {};     // but for what hidden_act says
  bool biased = false;                 // router and experts have biases, whatever a key says
  std::optional<double> aux_loss_fallback = 0.001;  // of router_aux_loss_coef; none: there is no such loss
  std::optional<SharedExpertRule> shared = {};
  std::string block = "mlp";  // "block_sparse_moe" in older Mixtral files
  ExpertNames experts = {};
  StackNames stack = {};
  RouterNames router_names = {};
  MemoryNames in_memory = {};
  bool transposed = false;                    // stacked experts are [E, D, 2F]
  bool either_way = false;                    // or, as 5.15 saves them by the same names, [E, 2F, D]
  bool interleaved = false;                   // of those gate and up alternate
  bool turned_factors = false;                // adapters of stacks have in and out exchanged (PEFT 0.19.1 on)
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
  bool sinks = false;
  bool output_gate = false;  // q_proj holds it
  bool chunked = false;      // chunked_attention | full_attention (Llama 4), with rope or without
  OtherMixer other_mixer = OtherMixer::kNone;
  DeltaNetLayout delta_net = DeltaNetLayout::kByKeyHead;
  RopeRule rope = {};
  bool query_scalar = false;  // query_pre_attn_scalar^-0.5 scales the scores

  NormKind norm_kind = NormKind::kRms;
  float norm_offset = 0;
  std::string eps_key = "rms_norm_eps";
  double rms_norm_eps = 1e-6;
  LayerNormNames norms = {};
  bool scaled_embeddings = false;  // times sqrt(hidden_size)
  bool multipliers = false;        // of embeddings, scores, residuals and logits (Granite)

  std::string activation_key = "hidden_act";
  std::string activation = "silu";              // fallback
  bool fused_gate_up = false;                   // one gate_up_proj in the file
  std::string width_key = "intermediate_size";  // of dense layers
  std::string mlp_bias_key = {};                // whether MLPs and experts have biases; empty: they have not
  std::string head_bias_key = {};
  std::optional<MoeRule> moe = {};

  std::optional<Index> head_dim = {};             // fallback; none: hidden_size / num_attention_heads
  std::optional<Index> num_key_value_heads = {};  // fallback; none: num_attention_heads
  Index max_position_embeddings = 32768;
  bool tie_word_embeddings = false;
  std::string tie_key = {};  // an older name of that key, which decides where it is there
  std::optional<Index> pad_token_id = {};
  bool reads_mxfp4 = false;  // quantization_config may say so; it is not written back
  NamePatterns beside = {};  // tensors that predict further tokens; HF's model does not read them
  /// Such layers stand behind the last one: num_nextn_predict_layers of them (DeepSeek-V3).
  bool further_layers = false;
  NamePatterns fp32 = {};  // tensors that stay fp32 beside every correction bias
  std::vector<FixedKey> fixed = {};
  /// Keys of this family that HF's model does not read either.
  std::vector<std::string> without_effect = {};
};

/// The whole table.
const std::vector<Family>& families();
/// Null for a model_type that is not in it.
const Family* find_family(const std::string& model_type);
/// Whether a tensor of a file is of another tower, or of layers that predict further tokens.
bool is_carried(const ModelConfig& config, const std::string& tensor);
/// Tensors of a file that stay fp32 whatever the others are rounded to, as HF's _keep_in_fp32_modules_strict
/// says: with its correction bias rounded to bf16, DeepSeek's router would choose other experts.
bool stays_fp32(const Family& family, const std::string& tensor);
/// "deepseek_v3, gemma3_text, ...": those that run.
std::string known_families();

}  // namespace moeloom
