// Counts as the cost model multiplies them.
#pragma once

#include "moeloom/base/index.hpp"

namespace moeloom {

inline double real(Index n) {
  return static_cast<double>(n);
}

/// Seconds of an amount at a rate; an amount of 0 needs none.
inline double per(double amount, double rate) {
  return amount == 0 ? 0 : amount / rate;
}

}  // namespace moeloom
