// The learning rate by step: linear warm-up, then half a cosine down to a floor.
#pragma once

#include "moeloom/base/index.hpp"

namespace moeloom {

/// A value, the same on every rank; no collective.
struct Schedule {
  double peak = 1e-3;
  Index warmup_steps = 0;       // 0: the first step has the peak
  Index total_steps = 1;        // with those of the warm-up
  double final_fraction = 0.1;  // the floor is this share of the peak
  /// The rate of step 0, 1, ...; the first warm-up step is peak / warmup_steps, and steps beyond the total
  /// stay at the floor.
  double at(Index step) const;
};

/// What usual_peak() is made of.
inline constexpr double kUsualPeak = 1e-3;
inline constexpr Index kUsualPeakWidth = 256;

/// The peak of AdamW's rate for a run that says none: kUsualPeak, beyond a hidden size of kUsualPeakWidth
/// times kUsualPeakWidth / hidden_size.
///
/// Adam moves a weight by about the rate, however small its gradient, so an output that sums hidden_size
/// products moves by rate * hidden_size: muP's rule for hidden matrices (Yang et al. 2022, "Tensor Programs
/// V", table 8). Embeddings and norms, whose rate muP leaves alone, follow it too, because there is one rate.
double usual_peak(Index hidden_size);

/// Steps up to a peak that somebody chose: a tenth of the schedule, at most 100.
Index usual_warmup(Index total_steps);

/// Steps up to usual_peak(): the same, but at least 10, which may be more than there are. Adam's first steps
/// move every weight by the whole rate along one gradient: at hidden size 2048 the losses of five were 5.60,
/// 7.20, 5.58, 4.87, 4.14 without warm-up, and 5.60, 5.09, 4.48, 3.78, 3.64 with this.
Index careful_warmup(Index total_steps);

}  // namespace moeloom
