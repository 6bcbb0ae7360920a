// Bytes that the dropout of adapters takes.
#pragma once

#include "moeloom/model/parts/parameters.hpp"
#include "moeloom/plan/memory/memory_need.hpp"

namespace moeloom {

/// Copies of some rows with zeros in them, which one product has at a time, and the keys of rows: of tokens,
/// and of each layer's experts from forward to backward.
double dropout_bytes(const std::vector<ParameterSpec>& specs, const Job& job, LayerRows rows);

}  // namespace moeloom
