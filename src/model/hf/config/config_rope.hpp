// The rotary part of config.json: rope_theta and rope_scaling (transformers 4), rope_parameters (5).
#pragma once

#include "moeloom/model/hf/config.hpp"

#include "hf/config/config_reader.hpp"

namespace moeloom {

/// Fills rope_theta, rope_scaling, partial_rotary_factor, window_rope and, for latent attention
/// whose positions are scaled, score_scale. Sizes of heads and max_position_embeddings are read before.
void read_rope(ConfigReader& reader, const Family& family, ModelConfig& config);

}  // namespace moeloom
