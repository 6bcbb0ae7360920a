#include "routing/hash_choice.hpp"

#include "moeloom/base/random.hpp"

#include <algorithm>
#include <string>

namespace moeloom {

void choose_by_hash(std::span<const std::int32_t> input_ids, Index layer, const RouterSettings& settings,
                    std::vector<std::int32_t>& topk_idx) {
  // Without a run's seed: a model that goes elsewhere takes its hash along.
  const CounterRandom random(0, stream_of("hash-router/" + std::to_string(layer)));
  const Index k = settings.top_k;
  topk_idx.resize(input_ids.size() * at(k));
  for (std::size_t t = 0; t < input_ids.size(); ++t) {
    const auto chosen = topk_idx.begin() + static_cast<Index>(t) * k;
    const auto first = static_cast<std::uint64_t>(input_ids[t]) * at(k);
    for (Index j = 0; j < k; ++j) {
      // The j-th of those that are left, found by passing over the chosen in rising order.
      auto e = static_cast<std::int32_t>(
          random.below(static_cast<std::uint64_t>(settings.num_experts - j), first + at(j)));
      std::vector<std::int32_t> taken(chosen, chosen + j);
      std::ranges::sort(taken);
      for (const std::int32_t other : taken)
        if (e >= other) ++e;
      chosen[j] = e;
    }
  }
}

}  // namespace moeloom
