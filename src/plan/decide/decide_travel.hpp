// Of a run's decision what concerns gradients and weights of all ranks: when their sums and gathers travel.
#pragma once

#include "moeloom/plan/decide/decide.hpp"

namespace moeloom {

/// -> the job's overlap_reduce and overlap_gather, with their reasons. Throws ConfigError for what was asked
/// for and cannot be.
void decide_travel(const AskedExchange& asked, Job& job, ExchangeReasons& why);

}  // namespace moeloom
