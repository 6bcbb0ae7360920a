// Which layers of a model have experts, and what mixes the tokens of each, where lists say so.
#pragma once

#include "moeloom/model/hf/config.hpp"

#include "hf/config_reader.hpp"

namespace moeloom {

/// moe_layers or an interval -> config.sparse_layers, by rising number.
void read_sparse_list(ConfigReader& reader, SparseRule rule, ModelConfig& config);

/// layer_types and what belongs to its kinds -> config.mixers, chunks and rope_layers. `layers`: how many,
/// within what a file may ask for.
void read_layer_kinds(ConfigReader& reader, const Family& family, Index layers, ModelConfig& config);

}  // namespace moeloom
