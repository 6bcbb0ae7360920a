// Functions of the C library whose floats change with its version: glibc 2.41 rounds log1pf and expm1f
// correctly, glibc 2.36 nearly so. Of a double, rounded once, they are the same in both.
#pragma once

#include <cmath>

namespace moeloom {

inline float log1p_of(float x) {
  return static_cast<float>(std::log1p(static_cast<double>(x)));
}
inline double log1p_of(double x) {
  return std::log1p(x);
}
inline float expm1_of(float x) {
  return static_cast<float>(std::expm1(static_cast<double>(x)));
}

}  // namespace moeloom
