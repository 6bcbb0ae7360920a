// Whether the predicted path of the experts keeps its word, and a trial of the other one where it does not.
//
//   steps 1..5     measured beside predicted; an error of at most 25 % ends the watch
//   steps 6..10    the same again: one slow stretch of a shared machine is no reason to change; nor is an
//                  error that leaves the path faster than what was predicted for the other
//   steps 11..15   the other path; then the faster of the two by medians stays, and that is final
#pragma once

#include "moeloom/kernels/gmm_policy.hpp"

#include <optional>
#include <vector>

#include "run/log.hpp"

namespace moeloom {

/// Of one layer and micro-batch, as the prediction is.
struct GmmCheck {
  double predicted_seconds = 0;
  double measured_seconds = 0;  // a median of steps
  /// Measured over predicted, less one.
  double error() const { return measured_seconds / predicted_seconds - 1; }
};

/// What a step brought; all empty for most.
struct GmmNews {
  Index step = 0;  // steps done
  std::optional<GmmCheck> check;
  std::optional<bool> use_grouped;      // from the next step on, the path that is used
  std::optional<GmmDecision> decision;  // final, in place of the predicted one
};
std::vector<Event> events_of(const GmmNews& news);

/// Pure: fed with the same seconds it says the same on every rank.
class GmmWatch {
 public:
  GmmWatch(bool grouped, const GmmPrediction& prediction) : grouped_(grouped), prediction_(prediction) {}

  /// steps_done: of the run; seconds: the experts' of one layer and micro-batch, the same on every rank.
  GmmNews after_step(Index steps_done, double seconds);
  bool done() const { return stage_ == Stage::kDone; }

 private:
  enum class Stage { kFirstCheck, kSecondCheck, kTrial, kDone };

  double predicted(bool grouped) const {
    return grouped ? prediction_.gmm_seconds : prediction_.loop_seconds;
  }
  void check(GmmNews& news, double measured);
  void decide(GmmNews& news, double of_other) const;

  bool grouped_;
  GmmPrediction prediction_;
  Stage stage_ = Stage::kFirstCheck;
  std::vector<double> seconds_;  // of this stage
  double of_chosen_ = 0;         // the second check's median
};

}  // namespace moeloom
