// What decides the way of a group's exchanges (Communicator::exchange_way), for those who foresee it.
#pragma once

#include "moeloom/comm/communicator.hpp"

namespace moeloom {

/// Whether what leaves a node goes by Open MPI's TCP alone, on every rank: then groups of more than two ranks
/// swap pieces. False where the ranks are of one node. Collective.
bool tcp_between_nodes(const Communicator& ranks);

/// Of `messages` between nodes in one MPI_Alltoallv of so many ranks, those that wait for each other; pieces
/// that are swapped do not. Open
/// MPI 4.1 and 5 post all at once from 4 to 63, from 128 to 255 and from 1024 ranks on, whatever the sizes,
/// and go from rank to rank otherwise (coll/tuned, ompi_coll_tuned_alltoallv_intra_dec_fixed).
double messages_in_turn(Index ranks, double messages);

}  // namespace moeloom
