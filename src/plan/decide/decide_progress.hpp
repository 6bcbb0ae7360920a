// Of a run's decision what concerns the thread that moves messages.
#pragma once

#include "moeloom/plan/decide/decide.hpp"

namespace moeloom {

/// Pure; after all that decides on what travels. Throws ConfigError for what was asked for and cannot be.
ProgressDecision decide_progress(const RunFacts& facts, const ProgressRequest& request,
                                 const RunDecision& decision);

}  // namespace moeloom
