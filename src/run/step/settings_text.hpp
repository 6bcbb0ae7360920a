// A model's settings as one text, for ranks to compare.
#pragma once

#include "moeloom/run/model.hpp"

#include <string>

namespace moeloom {

/// Of two texts that are equal every field is, to the last bit.
std::string settings_text(const ModelSettings& settings);

}  // namespace moeloom
