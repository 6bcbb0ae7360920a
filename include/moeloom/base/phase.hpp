// The phases of a training step: what a rank is doing now (PositionBoard).
//
// Times of a run are told by phase too.
#pragma once

#include <cstddef>
#include <string_view>

namespace moeloom {

enum class Phase {
  kOther,      // outside of steps, or between phases
  kData,       // batches are drawn
  kEmbed,      // tokens to hidden states
  kAttention,  // attention, or what a model has in its place
  kDense,      // dense layers and shared experts
  kRouter,     // scores and choices of experts
  kPlan,       // counts of rows are exchanged, places computed
  kDispatch,   // rows go to the ranks of their experts
  kExperts,    // the experts' products
  kCombine,    // results come back to their tokens
  kLoss,       // head and cross entropy
  kReduce,     // gradients are summed over ranks
  kOptimizer,  // clipping, update, new weights to all
  kReport  // after a step: ranks tell each other of it, behind weights that still travel; lines are written
};
inline constexpr std::size_t kPhases = 14;
/// In small letters without the k: "attention".
std::string_view name_of(Phase phase);

}  // namespace moeloom
