// A small model with everything that distinguishes one checkpoint layout from another, and stores of it on
// any mesh.
#pragma once

#include "moeloom/model/parameters.hpp"

namespace moeloom::testing {

/// Sparse, dense, sparse; experts that few rank counts divide; an embedding of more than 2^16 elements.
inline ModelConfig small_config() {
  ModelConfig config;
  config.vocab_size = 9001;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.moe_intermediate_size = 6;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 4;
  config.num_experts = 5;
  config.num_experts_per_tok = 2;
  config.mlp_only_layers = {1};
  return config;
}

inline ExpertRange experts_here(const ModelConfig& config, const Mesh& mesh) {
  return experts_of(config.num_experts, mesh.shape().ep, mesh.shape().ep_rank(mesh.world().rank()));
}

/// Every (dp, ep) of `world` ranks, whether or not the experts divide, in both orders of the axes.
inline std::vector<MeshShape> all_meshes(Index world) {
  std::vector<MeshShape> shapes;
  for (Index ep = 1; ep <= world; ++ep) {
    if (world % ep != 0) continue;
    shapes.push_back({world / ep, ep, {"dp", "ep"}});
    shapes.push_back({world / ep, ep, {"ep", "dp"}});
  }
  return shapes;
}

}  // namespace moeloom::testing
