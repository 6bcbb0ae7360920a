// What config.json says of attention's heads where layers differ, and of their values and gates.
#pragma once

#include "moeloom/model/hf/config.hpp"

#include "hf/config/config_reader.hpp"

namespace moeloom {

/// -> config.layer_heads, layer_kv_heads, layer_head_dims, value_dim, value_scale, keys_are_values,
/// num_kv_shared_layers, double_wide_mlp, gate_per_head. Windows and head_dim are read before. `layers`: how
/// many, within what a file may ask for.
void read_heads(ConfigReader& reader, const Family& family, Index layers, ModelConfig& config);

/// Layers that do not turn q and k -> config.rope_layers, layer_rope_theta. Windows and layers with experts
/// are read before.
void read_rope_layers(ConfigReader& reader, const Family& family, Index layers, ModelConfig& config);

}  // namespace moeloom
