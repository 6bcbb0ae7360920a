// What one decoder layer computes, said so that it can be built without knowing the model's name.
//
// ModelConfig makes these from config.json and the family's row (family.hpp); the decoder, the mixers and the
// list of parameters read nothing else. Names are those of parameters (parameters.hpp), which are the same
// for every family except norms, whose names say where they stand.
#pragma once

#include "model/parts/mixer_spec.hpp"
#include "moe/routing/router.hpp"
#include "moeloom/kernels/elementwise/swiglu.hpp"

#include <optional>
#include <string>
#include <variant>

namespace moeloom {

/// down(act(gate x) * up x). Parameters behind `prefix`: gate_up_proj.weight (gate rows first),
/// down_proj.weight, .bias of either.
struct MlpSpec {
  std::string prefix;  // "model.layers.0.mlp."
  Index hidden_size = 0;
  Index width = 0;
  GatedActivation activation;
  bool bias = false;
};

/// An MLP that every token visits, behind `prefix` of the block: shared_expert.gate_up_proj.weight,
/// shared_expert.down_proj.weight, .bias of either and, if gated, shared_expert_gate.weight [1, D].
struct SharedExpertSpec {
  Index width = 0;
  bool gated = false;  // times sigmoid(shared_expert_gate x)
  bool bias = false;
};

/// A router that reads the residual stream itself, normed in its own way (Gemma4): scale * norm(h).
struct RouterNorm {
  NormSpec norm;
  float scale = 1;
};

/// Parameters behind `prefix`: gate.weight, gate.bias, gate.e_score_correction_bias, gate.per_expert_scale
/// [E], experts.gate_up_proj, experts.down_proj, experts.gate_up_proj_bias, experts.down_proj_bias.
struct MoeSpec {
  std::string prefix;  // "model.layers.0.mlp."
  Index hidden_size = 0;
  Index width = 0;  // of one expert
  GatedActivation activation;
  RouterSettings router;         // without the bias itself, which is a parameter
  bool correction_bias = false;  // the router has one
  bool router_bias = false;      // of the logits
  bool expert_bias = false;      // of both products of every expert
  bool expert_scale = false;     // the weight of expert e is multiplied by a trained number (Gemma4)
  std::optional<RouterNorm> router_norm = {};  // else the router reads what the experts read
  std::optional<SharedExpertSpec> shared = {};
  float output_scale = 1;  // of routed and shared experts' sum (Cohere2: their mean)
};

/// Norms of a layer that has an MLP and experts side by side (Gemma4):
///   hidden += feed_forward_output_norm(mlp_output(mlp(feed_forward_norm(hidden)))
///                                      + experts_output(experts(experts_input(hidden))))
struct SideBySideNorms {
  NormSpec mlp_output;
  NormSpec experts_input;
  NormSpec experts_output;
};

/// hidden += norm(projection(act(gate hidden) * u)), u [P] the layer's part of what PerLayerEmbeddingSpec
/// makes of a token (Gemma4). Parameters behind `prefix`: per_layer_input_gate.weight [P, D],
/// per_layer_projection.weight [D, P].
struct PerLayerInputSpec {
  std::string prefix;  // "model.layers.0."
  Index hidden_size = 0;
  Index width = 0;  // P
  Activation act = Activation::kSilu;
  NormSpec norm;
};

/// Of a token with id i and embedding h0 (scaled), for all layers at once, L parts of P numbers:
///   u = (norm(projection_scale * projection h0) + embedding_scale * table[i]) / sqrt(2)
/// the norm of each part alone. Parameters: model.embed_tokens_per_layer.weight [V, L P],
/// model.per_layer_model_projection.weight [L P, D].
struct PerLayerEmbeddingSpec {
  Index width = 0;  // P
  Index layers = 0;
  Index vocab_size = 0;
  float embedding_scale = 1;
  float projection_scale = 1;
  NormSpec norm;
};

/// hidden += residual_scale * output_norm(mixer(norm(hidden))), then the same with the MLP or the experts; or
/// at once, hidden += mixer(norm(hidden)) + feed_forward(norm(hidden)).
struct LayerSpec {
  Index hidden_size = 0;
  std::optional<NormSpec> mixer_norm;
  MixerSpec mixer;
  std::optional<NormSpec> mixer_output_norm;
  std::optional<NormSpec> feed_forward_norm;
  std::optional<MlpSpec> mlp;  // this or moe; both with side_by_side
  std::optional<MoeSpec> moe;
  std::optional<SideBySideNorms> side_by_side = {};
  std::optional<NormSpec> feed_forward_output_norm;
  float residual_scale = 1;  // Granite's residual_multiplier
  bool parallel = false;     // both halves read mixer_norm, and there is no other norm (Cohere2)
  std::optional<PerLayerInputSpec> per_layer_input = {};  // behind the second half
  std::string scalar = {};  // a frozen parameter [1] that the layer's output is multiplied by (Gemma4)

  /// Null where the mixer is another.
  const AttentionSpec* attention() const { return std::get_if<AttentionSpec>(&mixer); }
};

}  // namespace moeloom
