// What mixes the tokens of a layer: attention in its many forms, a short convolution, a gated delta net.
#pragma once

#include "kernels/elementwise/output_gate.hpp"
#include "model/parts/norm_spec.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <variant>

namespace moeloom {

/// RMSNorm of q and k.
enum class QkNorm {
  kNone,
  kPerHead,     // over each head, weight [head_dim] (Qwen3, Gemma3)
  kWholeWidth,  // over all heads at once, weight [heads * head_dim] (OLMoE)
};

/// Multi-head latent attention (DeepSeek-V3): q and [k, v] come through narrow projections with a norm.
///
///   q = q_b(norm(q_a x)), or q_proj x if q_rank = 0     [heads * (nope_dim + rope_dim)]
///   [c, k_rope] = kv_a x                                [kv_rank + rope_dim], one k_rope for all heads
///   [k_nope, v] = kv_b(norm(c)), head by head           [heads * (nope_dim + value_dim)]
struct LatentSpec {
  Index q_rank = 0;
  Index kv_rank = 0;
  Index nope_dim = 0;
  Index rope_dim = 0;
  RmsNormSettings norm;  // of both latents; HF leaves rms_norm_eps out of it

  /// Rows of kv_a_proj_with_mqa.
  Index key_value_low_width() const { return kv_rank + rope_dim; }
};

/// What attention's output is multiplied by before o_proj reads it: function(gate), the gate a product of the
/// layer's input.
struct OutputGate {
  GateFunction function = GateFunction::kSigmoid;
  bool per_head = false;  // a number a head (Laguna), else one an element
  bool with_query =
      false;  // rows of qkv_proj, behind q's (Qwen3-Next); else gate_proj.weight, without a bias
};

/// Of queries in layers without rotary embedding (Llama4): at position t of its sequence or segment a query
/// is multiplied by 1 + scale ln(1 + floor((t + 1) / floor)).
struct QueryTemperature {
  double scale = 0.1;
  double floor = 8192;
};

/// AttentionSpec::rope of a layer that does not turn q and k.
inline constexpr Index kNoRope = -1;

/// Parameters behind `prefix`: qkv_proj.weight (q, gate, k, v rows), o_proj.weight, .bias of either,
/// gate_proj.weight, q_norm.weight, k_norm.weight, sinks; latent: q_proj.weight or q_a_proj.weight,
/// q_a_layernorm.weight, q_b_proj.weight, then kv_a_proj_with_mqa.weight, kv_a_layernorm.weight,
/// kv_b_proj.weight, with .bias at q_a, kv_a where qkv_bias.
struct AttentionSpec {
  std::string prefix;  // "model.layers.0.self_attn."
  Index hidden_size = 0;
  Index heads = 0;
  Index kv_heads = 0;
  Index head_dim = 0;   // of q and k
  Index value_dim = 0;  // of v
  std::optional<LatentSpec> latent;
  QkNorm qk_norm = QkNorm::kNone;
  RmsNormSettings norm;             // of q and k
  bool qk_norm_after_rope = false;  // HunYuan, Llama4
  bool qk_norm_weight = true;       // Llama4's has none
  bool qkv_bias = false;
  bool output_bias = false;
  std::optional<OutputGate> gate = {};
  bool keys_are_values = false;  // v is what k_proj gives, before norm and rope: no v rows (Gemma4)
  bool value_norm = false;       // v / rms(v) of each head, without a weight (Gemma4)
  float value_scale = 1;         // v is multiplied by it (MiMo-V2)
  /// The layer whose keys and values, normed and turned, this one reads too: qkv_proj has q rows alone, and
  /// there is no k_norm (Gemma4).
  std::optional<Index> keys_of = {};
  bool lends_keys = false;  // a later layer has this one as keys_of
  bool sinks = false;       // one a head in the softmax's sum (gpt_oss)
  Index rope = 0;           // which of ModelConfig::ropes(); kNoRope
  std::optional<QueryTemperature> temperature = {};
  Index window = 0;  // keys j with i - window < j <= i; 0: all j <= i
  Index chunk = 0;   // keys j with j / chunk = i / chunk; 0: all
  float scale = 1;   // of the scores

  /// The most keys that a query sees; 0: all before it.
  Index reach() const { return window > 0 && chunk > 0 ? std::min(window, chunk) : window + chunk; }
  Index query_width() const { return heads * head_dim; }
  Index key_width() const { return kv_heads * head_dim; }
  Index value_width() const { return kv_heads * value_dim; }
  Index output_width() const { return heads * value_dim; }  // what o_proj reads
  /// Rows of kv_b_proj, of latent attention.
  Index key_value_width() const { return heads * (latent->nope_dim + value_dim); }
  /// Numbers of the gate.
  Index gate_width() const { return !gate ? 0 : gate->per_head ? heads : output_width(); }
  /// Of them rows of qkv_proj.
  Index gate_rows() const { return gate && gate->with_query ? gate_width() : 0; }
  /// v is another matrix than what qkv_proj gives.
  bool values_apart() const { return !keys_of && (keys_are_values || value_norm); }
  /// Rows of qkv_proj that are v's.
  Index value_rows() const { return keys_are_values ? 0 : value_width(); }
  /// Rows of qkv_proj.
  Index projected_width() const {
    return query_width() + gate_rows() + (keys_of ? 0 : key_width() + value_rows());
  }
};

/// Parameters behind `prefix`: in_proj.weight [3 D, D] (B, C, X), conv.weight [D, taps], out_proj.weight,
/// .bias of all three (mixer/short_conv.hpp).
struct ShortConvSpec {
  std::string prefix;  // "model.layers.0.conv."
  Index hidden_size = 0;
  Index taps = 0;  // tokens that the convolution sees, its own the last
  bool bias = false;
};

/// Parameters behind `prefix`: in_proj.weight (q, k, v, z, b, a rows), conv1d.weight [q k v, taps], A_log,
/// dt_bias, norm.weight [value_dim], out_proj.weight (mixer/delta_net.hpp).
struct DeltaNetSpec {
  std::string prefix;  // "model.layers.0.linear_attn."
  Index hidden_size = 0;
  Index key_heads = 0;    // of q and k
  Index value_heads = 0;  // of v, z, b and a; a multiple
  Index key_dim = 0;
  Index value_dim = 0;
  Index taps = 0;        // of the convolution
  RmsNormSettings norm;  // of each head's output

  Index key_width() const { return key_heads * key_dim; }
  Index value_width() const { return value_heads * value_dim; }
  Index mixed_width() const { return 2 * key_width() + value_width(); }
  /// Rows of in_proj.
  Index projected_width() const { return mixed_width() + value_width() + 2 * value_heads; }

  // Columns of what in_proj gives; of v also behind the convolution.
  template <typename T>
  BasicView<T> mixed_of(BasicView<T> x) const {
    return x.cols_from(0, mixed_width());
  }
  template <typename T>
  BasicView<T> values_of(BasicView<T> x) const {
    return x.cols_from(2 * key_width(), value_width());
  }
  template <typename T>
  BasicView<T> z_of(BasicView<T> x) const {
    return x.cols_from(mixed_width(), value_width());
  }
  template <typename T>
  BasicView<T> b_of(BasicView<T> x) const {
    return x.cols_from(mixed_width() + value_width(), value_heads);
  }
  template <typename T>
  BasicView<T> a_of(BasicView<T> x) const {
    return x.cols_from(mixed_width() + value_width() + value_heads, value_heads);
  }
};

/// What moves information from token to token.
using MixerSpec = std::variant<AttentionSpec, ShortConvSpec, DeltaNetSpec>;

}  // namespace moeloom
