// Consecutive places in a list of experts, rows or tokens.
#pragma once

#include "moeloom/base/index.hpp"

namespace moeloom {

/// Places from `begin` to before `end`, from 0; empty where both are equal.
struct Stretch {
  Index begin = 0;
  Index end = 0;

  Index size() const { return end - begin; }
  /// The same places, counted from place `first`.
  Stretch after(Index first) const { return {begin - first, end - first}; }
};

}  // namespace moeloom
