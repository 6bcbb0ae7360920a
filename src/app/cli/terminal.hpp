// Whether a person watches stderr.
//
// Under mpirun a rank's stderr is a pipe to mpirun, which hands the bytes on to its own. So what decides
// there is mpirun's stderr, found through /proc on the node where mpirun runs, which is where rank 0 is by
// default.
#pragma once

#include "moeloom/run/events.hpp"

#include "cli/options.hpp"

namespace moeloom {

/// stderr is a terminal, or a pipe to an mpirun whose stderr is one.
bool stderr_is_watched();

/// Whether a live line should be shown.
bool progress_is_live(ProgressMode mode, LogLevel level, bool watched);

/// Columns of the terminal behind stderr; 80 if it does not say.
Index terminal_columns();

}  // namespace moeloom
