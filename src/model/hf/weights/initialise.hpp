// The values that a model starts from.
#pragma once

#include "model/parts/parameters.hpp"
#include "moeloom/model/hf/config.hpp"

#include <cstdint>

namespace moeloom {

/// Fills the values by name and position alone, so every mesh starts from the same weights: normal with
/// deviation config.initializer_range, ones for norms, zeros for biases, the logarithm of a number between 0
/// and 16 for what a delta net forgets by (HF).
void initialise(ParameterStore& store, const ModelConfig& config, std::uint64_t seed);
/// The same of an adapter's factors alone: A by its Init, B zeros, so that it begins by adding nothing.
void initialise_adapter(ParameterStore& store, const ModelConfig& config, std::uint64_t seed);

}  // namespace moeloom
