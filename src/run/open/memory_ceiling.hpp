// --memory of a run: what is said where not even the smallest slices fit, and what the run held in the end.
#pragma once

#include "plan/fit.hpp"
#include "plan/memory_changes.hpp"

#include <filesystem>

#include "record/log.hpp"

namespace moeloom {

/// Bytes by kind, a line each, largest first; kinds that there are none of are left out.
std::string memory_table(const MemoryNeed& need);

/// What single changes would bring, a line each; empty where none makes it less.
std::string memory_changes_text(const PlannedJob& planned, const MachineRates& rates);

/// Throws ConfigError where a folder for what may lie on a disk was given, and no parameter may.
void require_use_of_offload(const std::filesystem::path& folder,
                            const std::vector<ParameterSpec>& parameters);

/// Throws ConfigError with that table and the cheapest way out where a memory ceiling was asked for and is
/// less than what a rank needs. Pure.
void require_within_ceiling(const RunFacts& facts, const RunDecision& decision,
                            const std::set<std::string>& frozen);

/// The same where none was asked for and the machine has less left than a rank will take, even rows taken for
/// granted; the system would end the process without a word. available: bytes for each rank. Pure.
void require_within_node(const RunFacts& facts, const RunDecision& decision,
                         const std::set<std::string>& frozen, double available);

struct MemoryPeak {
  double bytes = 0;  // of the rank that held most, by the system's own count
  Index rows = 0;    // that experts of a layer had at once on a rank, at most
  RowRange range = {};
};

/// What a run held at most. Beside it the ceiling, or what was predicted for as many rows as came.
Event peak_event(const MemoryPeak& peak, const RunDecision& decision);

}  // namespace moeloom
