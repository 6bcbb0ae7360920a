// Rates of no machine in particular, for decisions that must not wait for a measurement or depend on one.
#pragma once

#include "plan/rates/machine_rates.hpp"

namespace moeloom {

/// Of a server's core with AVX2 and 10 Gbit/s Ethernet between nodes: half of the peak that products reach
/// there, a message of 30 us. threads: of a rank. What they decide changes speed alone,
/// unless rows are asked to be rounded on a wire or summed before it.
MachineRates built_in_rates(Index threads = 1);

}  // namespace moeloom
