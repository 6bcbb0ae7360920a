// Eight floats in a register: arithmetic by lane, loads and stores at any address.
#pragma once

#include <cstring>

namespace moeloom {

using Eight = float __attribute__((vector_size(32)));

inline Eight load8(const float* from) {
  Eight lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}
inline void store8(Eight lanes, float* to) {
  std::memcpy(to, &lanes, sizeof lanes);
}

}  // namespace moeloom
