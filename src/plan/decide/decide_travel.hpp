// Of a run's decision what concerns gradients and weights of all ranks: when their sums and gathers travel.
#pragma once

#include "plan/decide/decide.hpp"

namespace moeloom {

struct TravelDecision {
  bool overlap_reduce = false;
  std::string why_reduce;
  bool overlap_gather = false;
  std::string why_gather;
};

/// Pure. Throws ConfigError for what was asked for and cannot be.
TravelDecision decide_travel(const AskedExchange& asked, const Job& job);

}  // namespace moeloom
