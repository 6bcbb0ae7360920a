// Rates of exchanges between ranks: of each node, then between nodes.
#pragma once

#include "plan/rates/machine_rates.hpp"

namespace moeloom {

/// Fills in what the ranks of `world` can measure: node_* where a node has several, network_* where there are
/// several nodes with as many ranks each. Collective.
void measure_exchange(const Communicator& world, MachineRates& rates);

/// Rows of 1 KiB to each of so many ranks that are taken for a large exchange: a rank sends and receives 32
/// MiB at most, but for more than 8192 ranks.
Index large_pair_rows(Index ranks);

}  // namespace moeloom
