// A token drawn from logits, as Hugging Face's generation draws it. Of this rank alone, no collective.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstdint>
#include <span>

namespace moeloom {

/// Applied in this order, as in transformers: repetition_penalty, temperature, top_k, top_p, min_p. Of tokens
/// that tie for the last place of top_k transformers keeps all, this the lower id.
struct SamplingSettings {
  double temperature = 1.0;  // logits are divided by it; 0: the likeliest token, after the penalty
  Index top_k = 0;           // choose among so many; 0: all
  /// Choose among the fewest likeliest tokens that have this probability together (Holtzman et al., 2019).
  double top_p = 1.0;
  /// Only tokens whose probability is at least this share of the likeliest one's (Nguyen et al., 2024).
  double min_p = 0.0;
  /// Logits of tokens in the text: divided by it where positive, else multiplied (Keskar et al., 2019).
  double repetition_penalty = 1.0;
  std::uint64_t seed = 0;  // equal seeds draw equal tokens from equal logits at equal positions
};

/// Throws ConfigError, which lists every violation: temperature < 0, top_k < 0, top_p or min_p outside their
/// ranges (0, 1] and [0, 1], repetition_penalty <= 0.
void check(const SamplingSettings& settings);

/// The token drawn at `position` of the sequence from logits [V]; of the likeliest the lower id on a tie.
/// `text`: the tokens that repetition_penalty is for, ids in [0, V). A function of its arguments. `settings`
/// must pass check(). Throws ShapeError without logits, ConfigError for a NaN among them.
std::int32_t sample_token(std::span<const float> logits, const SamplingSettings& settings, Index position,
                          std::span<const std::int32_t> text = {});

}  // namespace moeloom
