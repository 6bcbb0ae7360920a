#include "moeloom/model/hf/config.hpp"

#include "model/hf/family.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/parts/parameters.hpp"

#include <algorithm>

namespace moeloom {
namespace {

Index elements(const ParameterSpec& spec) {
  return spec.rows * spec.cols;
}

}  // namespace

bool ModelConfig::is_sparse(Index layer) const {
  if (sparse_layers) return num_experts > 0 && std::ranges::binary_search(*sparse_layers, layer);
  return num_experts > 0 && layer >= first_k_dense_replace && (layer + 1) % decoder_sparse_step == 0 &&
         std::ranges::find(mlp_only_layers, layer) == mlp_only_layers.end();
}

bool ModelConfig::is_attention(Index layer) const {
  return attention_layers.empty() || attention_layers[at(layer)] != 0;
}

bool ModelConfig::has_experts() const {
  for (Index layer = 0; layer < num_hidden_layers; ++layer)
    if (is_sparse(layer)) return true;
  return false;
}

bool ModelConfig::has_z_loss() const {
  const std::optional<MoeRule>& moe = family().moe;
  return moe && moe->router.score == RouterScore::kSoftmax && moe->router.balance_by != BalanceBy::kWeights &&
         has_experts();
}

Index ModelConfig::total_parameters() const {
  Index sum = 0;
  for (const ParameterSpec& spec : own_parameters(*this))
    if (!spec.frozen) sum += elements(spec);
  return sum;
}

Index ModelConfig::active_parameters() const {
  Index sum = 0;
  for (const ParameterSpec& spec : own_parameters(*this))
    if (!spec.frozen)
      sum += spec.placement == Placement::kExperts ? elements(spec) / num_experts * top_k(spec.layer)
                                                   : elements(spec);
  return sum;
}

}  // namespace moeloom
