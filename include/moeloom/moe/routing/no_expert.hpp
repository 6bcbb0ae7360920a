// What a router writes where a slot has no expert: the capacity of its expert was used up, or experts chose
// their tokens and fewer than K chose this one.
#pragma once

#include <cstdint>

namespace moeloom {

/// Such a slot is not counted, sends no row and brings nothing back; the gradient of its weight is 0.
inline constexpr std::int32_t kNoExpert = -1;

}  // namespace moeloom
