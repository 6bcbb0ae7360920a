// Which weights each optimizer trains, and which of their rows are one matrix to it.
#pragma once

#include "model/parts/parameters.hpp"
#include "moeloom/base/stretch.hpp"
#include "moeloom/job/optimizer_kind.hpp"

#include <vector>

namespace moeloom {

/// Whether Muon trains it.
bool is_of_muon(const ParameterSpec& spec, OptimizerKind kind);
/// Rows of each group of a weight of Muon's that are a matrix of their own: gate and up, or q, k and v.
std::vector<Stretch> matrices_of(const ParameterSpec& spec);

}  // namespace moeloom
