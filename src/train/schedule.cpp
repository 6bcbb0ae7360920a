#include "moeloom/train/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moeloom {

double Schedule::at(Index step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const auto falling = static_cast<double>(std::max<Index>(total_steps - warmup_steps, 1));
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / falling);
  const double half_cosine = 0.5 * (1 + std::cos(std::numbers::pi * done));
  return peak * (final_fraction + (1 - final_fraction) * half_cosine);
}

double usual_peak(Index hidden_size) {
  const Index wider = std::max(hidden_size, kUsualPeakWidth);
  return kUsualPeak * static_cast<double>(kUsualPeakWidth) / static_cast<double>(wider);
}

Index usual_warmup(Index total_steps) {
  return std::min<Index>(total_steps / 10, 100);
}

Index careful_warmup(Index total_steps) {
  return std::max<Index>(usual_warmup(total_steps), 10);
}

}  // namespace moeloom
