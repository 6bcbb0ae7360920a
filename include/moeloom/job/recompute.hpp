// What a backward makes again instead of having kept it, for less memory. No bit changes.
#pragma once

#include <array>
#include <string_view>

namespace moeloom {

/// kNone: nothing. kExperts: of every feed-forward half (experts, shared expert or MLP) the rows and their
/// first product, and what norms give; the router's choice is kept, and rows go out to their experts once
/// more. kBlock: also all of attention, or what a layer has in its place; a layer keeps its input.
enum class Recompute { kNone, kExperts, kBlock };

inline constexpr std::array kRecomputes = {Recompute::kNone, Recompute::kExperts, Recompute::kBlock};

/// "none", "experts", "block".
constexpr std::string_view name_of(Recompute recompute) {
  constexpr std::array<std::string_view, 3> names = {"none", "experts", "block"};
  return names[static_cast<std::size_t>(recompute)];
}

}  // namespace moeloom
