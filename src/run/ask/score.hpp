// How well a model predicts examples: nats a token, and bits a byte for models of different tokenizers.
#pragma once

#include "io/example_file.hpp"

#include <span>
#include <vector>

#include "words/model_text.hpp"

namespace moeloom {

/// Of learned tokens that have a token before them. Bits a byte leave out what is no text, special tokens
/// such as the one that ends it: it has no bytes, one tokenizer puts it there and another does not. So they
/// are the loss of the text itself over its bytes, as EleutherAI's evaluation harness has them.
struct Score {
  double nats = 0;  // -log p of all of these tokens
  Index tokens = 0;
  double text_nats = 0;  // of those that are text
  Index bytes = 0;       // of the text that they give; 0 where that is not known

  double nats_per_token() const { return nats / static_cast<double>(tokens); }
  double bits_per_byte() const;
  Score& operator+=(const Score& other);
};

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
