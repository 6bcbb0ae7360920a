// Which layers of a model have experts, see chunks of tokens or mix them without attention, where lists say
// so.
#pragma once

#include "moeloom/model/hf/config.hpp"

#include <string>
#include <vector>

#include "hf/config/config_reader.hpp"

namespace moeloom {

/// Whether there is one a layer, each full_attention or `other`; else it is refused.
bool are_layer_types(ConfigReader& reader, const std::vector<std::string>& types, Index layers,
                     const std::string& other);

/// moe_layers, an interval or mlp_layer_types -> config.sparse_layers, by rising number.
void read_sparse_list(ConfigReader& reader, const MoeRule& rule, ModelConfig& config);

/// Llama 4: layer_types, no_rope_layers and the temperature of layers without rope -> config.chunks,
/// rope_layers, floor_scale and attn_scale. `layers`: how many, within what a file may ask for.
void read_chunks(ConfigReader& reader, Index layers, ModelConfig& config);

/// layer_types and the sizes of the mixer that is not attention -> config.attention_layers, conv_taps,
/// conv_bias and linear_*.
void read_mixers(ConfigReader& reader, OtherMixer other, Index layers, ModelConfig& config);

}  // namespace moeloom
