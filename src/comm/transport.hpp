// What carries messages between nodes.
#pragma once

#include "moeloom/comm/communicator.hpp"

namespace moeloom {

/// Whether what leaves a node goes by Open MPI's TCP alone, on every rank. False where the ranks are of one
/// node. Asked of MPI, not measured, so that two runs decide alike. Collective.
bool tcp_between_nodes(const Communicator& ranks);

}  // namespace moeloom
