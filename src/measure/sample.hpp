// One measured step: what a rank saw, and what the world makes of it.
#pragma once

#include "base/phase_clock.hpp"
#include "moeloom/comm/communicator.hpp"

namespace moeloom {

using PhaseTimes = std::array<double, kPhases>;  // seconds

/// Of this rank.
struct StepSample {
  double seconds = 0;
  double processor_seconds = 0;  // of its processor that the thread that trains took, where the subject knows
  PhaseTimes phase_seconds{};
  Index message_bytes = 0;  // handed to MPI
  Index row_bytes = 0;      // rows for experts of other ranks, a copy each
  Index rows = 0;           // for experts of this rank
  Index tokens = 0;         // of all ranks, where the subject knows
  double expert_load = 0;   // rows of the fullest expert over the mean; of all ranks
  double expert_gini = 0;   // of the rows of all experts, gini()
};

/// Of the world: the slowest rank's seconds, means of phases, sums of bytes.
struct WorldSample {
  double seconds = 0;
  PhaseTimes phase_seconds{};
  double message_bytes = 0;
  double row_bytes = 0;
  double rows = 0;  // that experts computed
  double expert_load = 0;
  double rank_load = 0;
  double expert_gini = 0;
  double rank_gini = 0;
};
/// Collective.
WorldSample gather(const StepSample& mine, const Communicator& world);

}  // namespace moeloom
