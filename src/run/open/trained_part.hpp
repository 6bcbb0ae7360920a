// What of a run's model is trained: all of it, what `freeze` leaves, or an adapter.
#pragma once

#include "moeloom/base/violations.hpp"

#include "open/run_setup.hpp"

namespace moeloom {

/// Of a model whose config and weights are known: fills in inputs.frozen and inputs.config.adapter, and adds
/// what can be said against what was asked. Throws IoError.
void open_trained_part(const TrainOptions& options, RunInputs& inputs, Violations& violations);

}  // namespace moeloom
