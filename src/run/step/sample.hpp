// The text that a run writes at its end.
#pragma once

#include "moeloom/run/options.hpp"

#include "words/model_text.hpp"

namespace moeloom {

class Decoder;
class Mesh;
struct KernelTable;

/// Why a run with this model can write none, with the arithmetic; empty if it can. text: none where ids have
/// no meaning.
std::string why_no_sample(const RunOptions& run, const ModelText* text, const ModelConfig& config);

/// What the model says after run.prompt, at most run.sample_chars tokens of it, on rank 0. Weights are
/// streamed, one row at a time, which the decoder keeps doing. Collective over the world.
std::string sample_text(Decoder& decoder, const Mesh& mesh, KernelTable kernels, const RunOptions& run,
                        const ModelText& text);

}  // namespace moeloom
