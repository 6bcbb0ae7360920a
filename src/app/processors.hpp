// How many threads a rank should run.
#pragma once

#include "moeloom/comm/mesh.hpp"

namespace moeloom {

/// `asked`, or, for 0: OMP_NUM_THREADS if it is set, else the processors this process is bound to, divided by
/// the node's ranks if it may use them all; at least 1.
int threads_for(Index asked, const Communicator& node);

}  // namespace moeloom
