// Eight numbers of a row in a register: what rows are copied and summed by.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstring>

namespace moeloom {

using RowLanes = float __attribute__((vector_size(32)));
inline constexpr Index kRowLanes = 8;

inline RowLanes load_lanes(const float* from) {
  RowLanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}
inline void store_lanes(RowLanes lanes, float* to) {
  std::memcpy(to, &lanes, sizeof lanes);
}

}  // namespace moeloom
