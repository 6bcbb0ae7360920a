// Where a step's time goes: one stopwatch that is always in exactly one phase.
#pragma once

#include <array>
#include <chrono>
#include <string_view>
#include <utility>

namespace moeloom {

enum class Phase {
  kOther,
  kData,
  kEmbed,
  kAttention,
  kDense,
  kRouter,
  kPlan,
  kDispatch,
  kExperts,
  kCombine,
  kLoss,
  kReduce,
  kOptimizer
};
inline constexpr std::size_t kPhases = 13;
std::string_view name_of(Phase phase);

/// start() forgets what went before; enter() charges the time since the last enter() to the phase that was
/// current.
class PhaseClock {
 public:
  void enter(Phase next) {
    const auto now = std::chrono::steady_clock::now();
    seconds_[static_cast<std::size_t>(current_)] += std::chrono::duration<double>(now - since_).count();
    current_ = next;
    since_ = now;
  }
  void start() { *this = PhaseClock(); }
  /// Seconds by phase since start() or the last call; the clock goes on in kOther.
  std::array<double, kPhases> take() {
    enter(Phase::kOther);
    return std::exchange(seconds_, {});
  }

 private:
  Phase current_ = Phase::kOther;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::array<double, kPhases> seconds_{};
};

}  // namespace moeloom
