// The text that a run writes at its end.
#pragma once

#include "moeloom/model/generate.hpp"

#include "cli/options.hpp"

namespace moeloom {

/// Why a run with this model and these data can write none, with the arithmetic; empty if it can.
std::string why_no_sample(const RunOptions& run, TokenFormat format, const ModelConfig& config);

/// What the model says after run.prompt, run.sample_chars bytes of it. Single rows are multiplied by plain
/// kernels, which the decoder keeps: tiles would pack every weight for each byte. Collective over the world.
std::string sample_text(Decoder& decoder, const Mesh& mesh, KernelTable kernels, const RunOptions& run);

}  // namespace moeloom
