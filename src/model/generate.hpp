// Text from a model, one token at a time, with a key-value cache.
#pragma once

#include "model/decoder.hpp"
#include "moeloom/model/sampling.hpp"

#include <functional>

namespace moeloom {

struct GenerationSettings {
  Index tokens = 0;  // at most so many more than the prompt
  SamplingSettings sampling = {};
  std::vector<std::int32_t> end_tokens = {};  // any of them ends the text, and is its last token
  /// What the decoder has read before is not read again, as far as it is the beginning of the prompt. Sums
  /// are then formed in another order than in a prompt that is read as a whole.
  bool resumes = false;
};

/// This rank's prompt and what follows it. Each rank may have a text of its own; one with an empty prompt
/// lends its experts until no rank's text goes on, and gets an empty text. `on_token` sees each new token as
/// it comes, and returns whether the text goes on. Collective over the world.
std::vector<std::int32_t> generate(Decoder& decoder, const Mesh& mesh, std::vector<std::int32_t> prompt,
                                   const GenerationSettings& settings,
                                   const std::function<bool(std::int32_t)>& on_token = {});

}  // namespace moeloom
