// What `inspect` says of a model before its memory and its tensors: layers, attention, experts, a line each.
#pragma once

#include "moeloom/model/hf/config.hpp"

#include <filesystem>

namespace moeloom {

void print_architecture(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace moeloom
