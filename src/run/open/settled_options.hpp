// What an option means that was left to the model or to the run that is resumed.
#pragma once

#include "open/run_setup.hpp"

namespace moeloom {

/// What was asked, of so many steps and no epochs, with all that is left to the model and to the run that is
/// resumed: the vocabulary, --lr and --aux-loss of auto. As train.conf keeps it.
TrainOptions settled(const TrainOptions& asked, const RunInputs& inputs, Index steps);

/// Why its learning rate is what it is; empty: it was said.
std::string why_rate(const TrainOptions& asked, const RunInputs& inputs);

}  // namespace moeloom
