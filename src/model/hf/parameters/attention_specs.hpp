// What attention of a layer computes, from config.json's words and the family's row.
#pragma once

#include "model/parts/mixer_spec.hpp"
#include "moeloom/model/hf/config.hpp"

#include <string>

namespace moeloom {

RmsNormSettings norm_settings(const ModelConfig& config);

/// prefix: "model.layers.0."
AttentionSpec attention_of(const ModelConfig& config, Index layer, const std::string& prefix);

}  // namespace moeloom
