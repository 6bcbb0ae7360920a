// Where a run's model comes from: a run to go on with, a Hugging Face folder, or a shape from flags.
#pragma once

#include "moeloom/base/violations.hpp"

#include "open/run_setup.hpp"

namespace moeloom {

/// Fills in what `inputs` says of the model, adding to `violations` what can be said against it for `world`
/// ranks. Weights, and a run that goes on, are where inputs.start says. Throws IoError for a file,
/// ConfigError for a model that is not supported.
void open_model(const TrainOptions& options, Index world, RunInputs& inputs, Violations& violations);

}  // namespace moeloom
