// The smallest model that has all parts.
#pragma once

#include "moeloom/model/hf/config.hpp"

namespace moeloom::testing {

inline ModelConfig small_model() {
  ModelConfig shape;
  shape.num_hidden_layers = 2;
  shape.hidden_size = 16;
  shape.moe_intermediate_size = 8;
  shape.num_attention_heads = 2;
  shape.num_key_value_heads = 1;
  shape.head_dim = 8;
  shape.num_experts = 4;
  return shape;
}

}  // namespace moeloom::testing
