// Which layers of a model have experts, see chunks of tokens or mix them without attention, where lists say
// so.
#pragma once

#include "moeloom/model/hf/config.hpp"

#include "hf/config_reader.hpp"

namespace moeloom {

/// moe_layers or an interval -> config.sparse_layers, by rising number.
void read_sparse_list(ConfigReader& reader, SparseRule rule, ModelConfig& config);

/// Llama 4: layer_types, no_rope_layers and the temperature of layers without rope -> config.chunks,
/// rope_layers, floor_scale and attn_scale. `layers`: how many, within what a file may ask for.
void read_chunks(ConfigReader& reader, Index layers, ModelConfig& config);

/// layer_types and the sizes of the mixer that is not attention -> config.attention_layers, conv_taps,
/// conv_bias and linear_*.
void read_mixers(ConfigReader& reader, OtherMixer other, Index layers, ModelConfig& config);

}  // namespace moeloom
