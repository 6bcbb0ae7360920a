// --memory of a run: what is said where not even the smallest slices fit, and what the run held in the end.
#pragma once

#include "moeloom/plan/fit.hpp"

#include "run/record/log.hpp"

namespace moeloom {

/// Bytes by kind, a line each, largest first; kinds that there are none of are left out.
std::string memory_table(const MemoryNeed& need);

/// Throws ConfigError with that table and the cheapest way out where a memory ceiling was asked for and is
/// less than what a rank needs. Pure.
void require_within_ceiling(const RunFacts& facts, const RunDecision& decision,
                            const std::set<std::string>& frozen);

/// What a run held at most, of the rank that held most: the system's own count, with pages of other ranks
/// that it wrote to. Beside it the ceiling, or what was predicted.
Event peak_event(Index peak_bytes, const RunDecision& decision);

}  // namespace moeloom
