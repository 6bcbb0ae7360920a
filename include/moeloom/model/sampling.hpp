// A token drawn from logits, as Hugging Face's generation draws it.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstdint>
#include <span>

namespace moeloom {

/// Applied in this order, as transformers does (which keeps all that tie with the last of top_k; here the
/// lower id): repetition_penalty, temperature, top_k, top_p, min_p.
struct SamplingSettings {
  double temperature = 1.0;  // logits are divided by it; 0: always the likeliest token
  Index top_k = 0;           // choose among so many; 0: all
  double top_p =
      1.0;  // the fewest likeliest tokens that have this probability in all (Holtzman et al., 2019)
  double min_p = 0.0;  // only tokens at least so likely as this share of the likeliest (Nguyen et al., 2024)
  /// Logits of tokens in the text: divided by it where positive, else multiplied (Keskar et al., 2019).
  double repetition_penalty = 1.0;
  std::uint64_t seed = 0;
};

/// Throws ConfigError: temperature < 0, top_k < 0, top_p or min_p outside their ranges (0, 1] and [0, 1],
/// repetition_penalty <= 0.
void check(const SamplingSettings& settings);

/// The token drawn at `position` of the sequence from logits [V]; the lower id on a tie. `text`: the tokens
/// that repetition_penalty is for. A function of its arguments.
std::int32_t sample_token(std::span<const float> logits, const SamplingSettings& settings, Index position,
                          std::span<const std::int32_t> text = {});

}  // namespace moeloom
