// What decides the way of a group's exchanges (Communicator::exchange_way), for those who foresee it.
#pragma once

#include "moeloom/comm/communicator.hpp"

namespace moeloom {

/// Whether what leaves a node goes by Open MPI's TCP alone, on every rank: then groups of more than two ranks
/// swap pieces. False where the ranks are of one node. Collective.
bool tcp_between_nodes(const Communicator& ranks);

}  // namespace moeloom
