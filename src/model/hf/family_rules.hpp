// What the rows of families are made of: rules for keys, names and parts (family.hpp).
#pragma once

#include "model/parts/layer_spec.hpp"
#include "moeloom/kernels/elementwise/rope_table.hpp"
#include "moeloom/model/hf/checkpoint_names.hpp"

#include <optional>
#include <string>
#include <vector>

namespace moeloom {

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
  kTypes,       // where layer_types says so, or nowhere (Mellum, Laguna)
};

/// Of WindowRule: the window's fallback, and for kPattern where layers without one are: layer l if l + 1 +
/// shift is a multiple of the pattern.
struct WindowFallbacks {
  Index size = 4096;
  std::string pattern_key = "sliding_window_pattern";  // empty: there is none
  std::string list_key = {};                           // 1 for each layer with a window, in released files
  Index pattern = 6;
  Index shift = 0;
  bool first_full = false;   // the first layer is one, too (MiMo-V2)
  bool last_full = false;    // the last layer is one, whatever layer_types says (Gemma4)
  bool after_dense = false;  // counted from the first layer with experts on (Cohere2)
};

/// What a file says of layers that differ in their heads.
enum class HeadsByLayer {
  kNone,
  kList,            // num_attention_heads_per_layer (Laguna)
  kTwiceInWindows,  // key and value heads; or swa_num_key_value_heads (MiMo-V2)
  kLayerConfig,     // per_layer_config, or global_head_dim, num_global_key_value_heads of full ones (Gemma4)
};

enum class SinkRule { kNone, kAll, kWindows };

/// Which layers turn q and k.
enum class RopeLayers {
  kAll,
  kWindows,          // those with a window (EXAONE, AFMoE)
  kWindowsAndDense,  // and dense ones, if prefix_dense_sliding_window_pattern is 1 (Cohere2)
  kThetas,           // layer_rope_theta has each layer's theta, 0: it does not turn (Granite)
};

/// What attention's output gate is, if a key says it: gating, true or "per-head" or another string (Laguna).
struct GateRule {
  OutputGate gate;
  bool by_key = false;
};

/// Fallbacks of the rope of layers with a window, where rope_parameters has an object a layer type.
struct WindowRopeRule {
  std::string theta_key = {};  // beside rope_parameters, or in place of it; empty: there is none
  double theta = 10000.0;
  double partial = 1.0;
};

struct RopeRule {
  RopePairs pairs = RopePairs::kHalfSplit;
  double theta = 10000.0;
  std::optional<double> partial = {};         // fallback of partial_rotary_factor; none: the whole head turns
  std::optional<double> partial_inside = {};  // in an object of a layer type; none: 1
  std::optional<WindowRopeRule> windows = {};
  RopeLayers layers = RopeLayers::kAll;
  bool proportional = false;       // full layers may be, and are where there is no rope_parameters
  bool longrope = false;           // Phi3: "su" and "yarn" are older names of longrope
  bool mscales = false;            // longrope: short_mscale and long_mscale (PhiMoE)
  bool stated = false;             // rope_scaling must be there, if only as null
  bool yarn_scales_scores = true;  // of latent attention, by mscale_all_dim
  bool ntk_alpha = false;          // "dynamic" with an alpha (HunYuan)
  bool by_width = false;           // rotary_dim says how much of the head turns (MiniMax)
  bool multimodal = false;         // mrope_section: for text all three positions are the same
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
  std::string sparse_output = {};  // that of layers with experts alone (A.X K1)
  std::string last = "norm";       // in a checkpoint; the parameter is model.norm
};

/// What a checkpoint calls parts of attention.
struct AttentionNames {
  std::string output = "o_proj";
  std::string gate = "gate_proj";
  std::string sinks = "sinks";
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
  bool correction_bias_is_row = false;       // [1, E]
  std::string input_scale = "router.scale";  // of a router with a norm of its own
  std::string expert_scale = "router.per_expert_scale";
};

enum class SparseRule {
  kAll,          // every layer
  kStepAndList,  // decoder_sparse_step, but for mlp_only_layers
  kAfterFirst,   // first_k_dense_replace dense ones, then experts
  kInterval,     // each moe_layer_interval-th of moe_layer_start_index..moe_layer_end_index (Ernie 4.5)
  kList,         // moe_layers, or each interleave_moe_layer_step-th (Llama 4)
  kTypes,        // mlp_layer_types, or first_k_dense_replace dense ones, then experts
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
  bool beside_block = false;       // its tensors are the layer's, not the block's
  std::string fused_gate_up = {};  // one tensor's name; empty: gate_proj and up_proj
  std::string down = "down_proj";
  bool averaged = false;  // unless shared_expert_combination_strategy says "sum" (Cohere2)
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

/// What transformers 5 calls a tensor or a module in memory, and in a file that
/// save_pretrained(save_original_format=False) wrote; both whole words of a name.
struct MemoryName {
  std::string in_file, in_memory;
};

struct MoeRule {
  std::string experts_key = "num_experts";
  std::string top_k_key = "num_experts_per_tok";
  std::string width_key = "moe_intermediate_size";
  std::string enabled_key = {};  // that must be true, absent it is false (Gemma4)
  /// Both may be lists with an entry a layer, that of experts with equal ones (HunYuan).
  bool by_layer = false;
  SparseRule sparse = SparseRule::kAll;
  RouterRule router = {};
  TopkNorm topk_norm = TopkNorm::kByKey;
  bool topk_norm_fallback = false;
  std::string sparse_list_key = {};  // of kTypes: 1 for each layer with experts, in released files
  std::string first_dense_key = "first_k_dense_replace";  // empty: there is none
  Index first_dense = 3;                                  // its fallback
  std::string least_sum_key = {};  // of Division::number, the least sum that weights are divided by
  std::optional<GroupRule> groups = {};
  std::optional<double> scaling = {};  // fallback of scaling_key; none: there is no such key
  std::string scaling_key = "routed_scaling_factor";
  bool sigmoid_by_key = false;     // expert_selection_fn "sigmoid": of the chosen logits (Cohere2)
  std::string cap_key = {};        // of RouterSettings::logit_cap
  bool router_norm = false;        // the router reads the residual stream through a norm and a scale (Gemma4)
  bool expert_scale = false;       // weights times a number an expert (Gemma4)
  bool corrected = false;          // a correction bias of the choice
  std::string corrected_key = {};  // that says whether there is one, true where it is absent
  GatedActivation activation = {};                  // but for what hidden_act says
  bool biased = false;                              // router and experts have biases, whatever a key says
  std::optional<double> aux_loss_fallback = 0.001;  // of router_aux_loss_coef; none: there is no such loss
  std::optional<SharedExpertRule> shared = {};
  std::string block = "mlp";  // "block_sparse_moe" in older Mixtral files; empty: tensors are the layer's own
  bool biased_by_key = true;  // mlp_bias_key also says whether experts have biases
  ExpertNames experts = {};
  StackNames stack = {};
  RouterNames router_names = {};
  std::vector<MemoryName> in_memory = {};     // within the block
  bool transposed = false;                    // stacked experts are [E, D, 2F]
  bool either_way = false;                    // or, as 5.15 saves them by the same names, [E, 2F, D]
  bool only_stacked = false;                  // transformers reads no list of this family's experts
  bool interleaved = false;                   // of those gate and up alternate
  bool turned_factors = false;                // adapters of stacks have in and out exchanged (PEFT 0.19.1 on)
  ExpertLayout layout = ExpertLayout::kList;  // where no file says
};

}  // namespace moeloom
