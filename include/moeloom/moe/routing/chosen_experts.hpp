// Which experts tokens visit, whoever chose them.
#pragma once

#include "moeloom/base/stretch.hpp"

#include <cstdint>
#include <span>

namespace moeloom {

/// In place of an expert: the capacity of its expert was used up, or experts chose their tokens and fewer
/// than K chose this one. Such a slot is not counted, sends no row and adds nothing to its token; the
/// gradient of its weight is 0.
inline constexpr std::int32_t kNoExpert = -1;

/// What a router chose for T tokens of this rank, K slots each. Views: what they show must outlive them.
struct ChosenExperts {
  std::span<const std::int32_t> topk_idx;  // [T, K]: ids among all experts; kNoExpert for a slot without one
  std::span<const float> topk_weights;     // [T, K]
  Index top_k = 0;                         // K

  /// The slots of some of the tokens, not checked.
  ChosenExperts of(const Stretch& tokens) const {
    const auto slots = [&](auto all) {
      return all.subspan(at(tokens.begin * top_k), at(tokens.size() * top_k));
    };
    return {slots(topk_idx), slots(topk_weights), top_k};
  }
};

}  // namespace moeloom
