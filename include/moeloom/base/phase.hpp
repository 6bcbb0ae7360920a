// The phases of a training step, which several rooms enter.
#pragma once

#include <cstddef>
#include <string_view>

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

}  // namespace moeloom
