// What Hugging Face calls the activations of a gated MLP.
#pragma once

#include "moeloom/kernels/swiglu.hpp"

#include <optional>
#include <string>

namespace moeloom {

inline constexpr const char* kActivationNames = "silu, swish, gelu, gelu_new, gelu_pytorch_tanh";

inline std::optional<Activation> activation_named(const std::string& name) {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGelu;
  return std::nullopt;
}

}  // namespace moeloom
