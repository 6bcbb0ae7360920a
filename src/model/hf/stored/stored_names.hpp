// Tensors that a folder keeps otherwise than the model has them.
#pragma once

#include "moeloom/io/safetensors.hpp"
#include "moeloom/model/hf/config.hpp"

#include <string>

namespace moeloom {

/// Where the folder has a tensor of the model: of tied tables some keep the head alone, which is then the
/// embedding too.
std::string stored_name(const SafetensorsFolder& folder, const ModelConfig& config, const std::string& name);

/// Frequencies of rope that older versions of transformers stored with each layer; they are computed, and
/// transformers passes them over too.
bool is_computed(const std::string& name);

}  // namespace moeloom
