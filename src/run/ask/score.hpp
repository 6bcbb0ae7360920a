// How well a model predicts an example, from the loss of each of its tokens.
#pragma once

#include "io/example_file.hpp"
#include "moeloom/run/asking.hpp"

#include <span>
#include <vector>

#include "words/model_text.hpp"

namespace moeloom {

struct ScoredExample {
  Score score;
  std::vector<double> logprobs;  // of each of its tokens
};

/// losses [ids]: -log p of the token behind each, as Decoder::token_losses gives them. `text` may be null:
/// ids without a meaning. Bytes are UTF-8, of what the example's ids decode to; those of a character that
/// several tokens make are counted where it ends.
ScoredExample score_example(const ExampleView& example, std::span<const double> losses,
                            const ModelText* text);

}  // namespace moeloom
