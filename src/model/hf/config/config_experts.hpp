// What config.json says of the second half of layers: MLPs, experts, routers.
#pragma once

#include "moeloom/model/hf/config.hpp"

#include "hf/config/config_reader.hpp"

namespace moeloom {

/// Sizes are read before.
void read_feed_forward(ConfigReader& reader, const Family& family, ModelConfig& config);

}  // namespace moeloom
