// The text that a run writes at its end.
#pragma once

#include "moeloom/app/options.hpp"

namespace moeloom {

/// Why a run with this model and these data can write none, with the arithmetic; empty if it can.
std::string why_no_sample(const RunOptions& run, TokenFormat format, const ModelConfig& config);

}  // namespace moeloom
