// The environment as values. Nothing else of the program reads it; MPI and OpenMP read what is theirs.
#pragma once

#include "moeloom/run/flags.hpp"

#include <functional>
#include <optional>
#include <string>

namespace moeloom {

/// The text of a variable, or none if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// This process's own.
std::optional<std::string> own_variable(const std::string& name);

/// Pure. Values are trimmed and lower-cased; an empty one counts as unset. A MOELOOM_ name and its
/// TWINKLE_NPU_ alias may both be set if they agree. Throws ConfigError with every value that is not valid
/// and every pair that disagrees.
RunFlags read_environment(const EnvironmentLookup& lookup);
/// This process's own.
RunFlags read_environment();

/// This process's rank by the launcher's own word, before MPI is started; 0 without a launcher.
Index launcher_rank(const EnvironmentLookup& lookup);
Index launcher_rank();
/// The number of ranks, likewise; 1 without a launcher.
Index launcher_ranks(const EnvironmentLookup& lookup);
Index launcher_ranks();
/// Its number among those of its host, likewise.
Index launcher_node_rank();
/// The number of those; 1 where the launcher does not say.
Index launcher_node_ranks(const EnvironmentLookup& lookup);

}  // namespace moeloom
