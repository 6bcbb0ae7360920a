// Slots without an expert: what capacity, expert choice and hash routing leave of a table of choices.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/moe/routing/chosen_experts.hpp"

#include <algorithm>
#include <vector>

namespace moeloom::testing {

enum class Drops { kNone, kSome, kMost, kFirstOfEachToken, kEverySecondToken, kExpert, kRank };
constexpr Drops kDrops[] = {
    Drops::kNone,   Drops::kSome, Drops::kMost, Drops::kFirstOfEachToken, Drops::kEverySecondToken,
    Drops::kExpert, Drops::kRank};

/// chosen [T, K] of a rank; kExpert drops whoever chose `hot`, kRank all of the last rank.
inline std::vector<std::int32_t> dropped(std::vector<std::int32_t> chosen, Index top_k, Drops drops,
                                         std::int32_t hot, bool last_rank, std::uint64_t seed) {
  const CounterRandom random(seed, stream_of("drops"));
  for (std::size_t slot = 0; slot < chosen.size(); ++slot) {
    const auto token = slot / static_cast<std::size_t>(top_k);
    const double share = drops == Drops::kSome ? 0.3 : drops == Drops::kMost ? 0.9 : 0;
    const bool drop = (share > 0 && random.uniform(slot) < share) ||
                      (drops == Drops::kFirstOfEachToken && slot % static_cast<std::size_t>(top_k) == 0) ||
                      (drops == Drops::kEverySecondToken && token % 2 == 0) ||
                      (drops == Drops::kExpert && chosen[slot] == hot) ||
                      (drops == Drops::kRank && last_rank);
    if (drop) chosen[slot] = kNoExpert;
  }
  return chosen;
}

}  // namespace moeloom::testing
