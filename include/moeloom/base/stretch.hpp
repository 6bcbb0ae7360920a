// Consecutive places: experts, rows, keys, panels.
#pragma once

#include "moeloom/base/index.hpp"

namespace moeloom {

/// Places from `begin` to before `end`.
struct Stretch {
  Index begin = 0;
  Index end = 0;

  Index size() const { return end - begin; }
  /// Counted from place `first`.
  Stretch after(Index first) const { return {begin - first, end - first}; }
};

}  // namespace moeloom
