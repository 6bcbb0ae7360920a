// The learning rate by step: linear warm-up, then half a cosine down to a floor.
#pragma once

#include "moeloom/base/index.hpp"

namespace moeloom {

struct Schedule {
  double peak = 1e-3;
  Index warmup_steps = 0;
  Index total_steps = 1;
  double final_fraction = 0.1;
  /// Of step 0, 1, ...; the first warm-up step is peak / warmup_steps, and steps beyond the total stay at the
  /// floor.
  double at(Index step) const;
};

}  // namespace moeloom
