// A vector register as the compiler knows it: arithmetic by lane, loads and stores at any address.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstring>

namespace moeloom {

#ifdef __AVX512F__
inline constexpr Index kLanes = 16;
#else
inline constexpr Index kLanes = 8;
#endif
using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));

inline void load(Vector& to, const float* from) {
  std::memcpy(&to, from, sizeof to);
}

inline void store(float* to, const Vector& from) {
  std::memcpy(to, &from, sizeof from);
}

constexpr Index whole_vectors(Index count) {
  return ceil_div(count, kLanes) * kLanes;
}

}  // namespace moeloom
