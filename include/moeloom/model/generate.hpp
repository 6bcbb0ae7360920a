// Text from a model, one token at a time, with a key-value cache.
#pragma once

#include "moeloom/model/decoder.hpp"

#include <functional>

namespace moeloom {

struct SamplingSettings {
  double temperature = 1.0;  // 0: always the likeliest token
  Index top_k = 0;           // choose among so many; 0: all
  std::uint64_t seed = 0;
};

/// The token drawn at `position` of the sequence from logits [V]; the lower id on a tie. A function of its
/// arguments.
std::int32_t sample_token(std::span<const float> logits, const SamplingSettings& settings, Index position);

/// `prompt` (at least one token on world rank 0, ignored elsewhere) and `count` tokens more, on rank 0; empty
/// on the others, who lend their experts. `on_token` sees each new token as it comes. Collective over the
/// world.
std::vector<std::int32_t> generate(Decoder& decoder, const Mesh& mesh, std::vector<std::int32_t> prompt,
                                   Index count, const SamplingSettings& settings,
                                   const std::function<void(std::int32_t)>& on_token = {});

}  // namespace moeloom
