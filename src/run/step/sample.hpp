// The text that a run writes at its end.
#pragma once

#include "open/opened_run.hpp"

namespace moeloom {

class Decoder;

/// Why a run with this model can write none, with the arithmetic; empty if it can. text: none where ids have
/// no meaning.
std::string why_no_sample(const RunOptions& run, const ModelText* text, const ModelConfig& config);

/// What the model says after the run's prompt, at most sample_chars tokens of it, on rank 0; empty where none
/// was asked for, or where there can be none, which is said. Weights are streamed, one row at a time, which
/// the decoder keeps doing. Collective over the world.
std::string sample(const OpenedRun& run, Decoder& decoder);

}  // namespace moeloom
