// Which layers of config.json see a window of the past only.
#pragma once

#include "moeloom/model/hf/config.hpp"

#include "hf/config/config_reader.hpp"

namespace moeloom {

/// One a layer, 0 for all earlier tokens; empty if no layer has a window.
std::vector<Index> read_windows(ConfigReader& reader, const Family& family, Index layers);

}  // namespace moeloom
