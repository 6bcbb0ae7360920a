// What a norm computes, and the name of its weight.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/kernels/elementwise/rmsnorm.hpp"

#include <string>

namespace moeloom {

enum class NormKind {
  kRms,
  kLayer,             // around the mean, with a bias: NAME.bias beside NAME.weight (PhiMoE)
  kLayerWithoutBias,  // around the mean (Cohere2)
};

struct NormSpec {
  std::string name;  // of the parameter: "model.layers.0.input_layernorm.weight"
  Index width = 0;
  RmsNormSettings settings;  // of a LayerNorm its eps
  NormKind kind = NormKind::kRms;

  /// Of a LayerNorm.
  std::string bias_name() const { return name.substr(0, name.rfind('.')) + ".bias"; }
};

}  // namespace moeloom
