// By what the model under an adapter is known again: its checkpoints have a path, and not its weights.
#pragma once

#include "moeloom/io/safetensors.hpp"

#include <string>

namespace moeloom {

/// A sum of all tensors' names, formats and shapes, and of 4 KiB in the middle of at most 256 of them, evenly
/// spaced by name: training changes nearly all numbers. Reads 1 MiB, whatever the model's size.
std::string base_mark(const SafetensorsFolder& base);

}  // namespace moeloom
