// What a backward makes again instead of having kept it, for less memory. Bits do not change.
#pragma once

#include <array>
#include <string_view>

namespace moeloom {

/// kExperts: of every feed-forward half (experts, shared expert or MLP) the rows and their first product, and
/// what norms give;
/// routing and plan are kept, so that rows go out once more, by the same plan, and no result comes back.
/// kBlock: of the token mixer all as well; a layer keeps its input.
enum class Recompute { kNone, kExperts, kBlock };

inline constexpr std::array kRecomputes = {Recompute::kNone, Recompute::kExperts, Recompute::kBlock};

/// "none", "experts", "block".
constexpr std::string_view name_of(Recompute recompute) {
  constexpr std::array<std::string_view, 3> names = {"none", "experts", "block"};
  return names[static_cast<std::size_t>(recompute)];
}

}  // namespace moeloom
