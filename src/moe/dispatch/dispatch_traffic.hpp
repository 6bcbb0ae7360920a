// What rows cost, as it is sent and as one copy for each chosen expert.
#pragma once

#include <cstdint>

namespace moeloom {

/// Since a dispatcher was made, by the rank that sent it.
struct DispatchTraffic {
  std::int64_t network_bytes = 0;  // to other nodes: rows, the numbers beside them, and where they land
  std::int64_t row_bytes = 0;      // one fp32 copy of a row for each chosen expert of another rank, each way

  DispatchTraffic operator-(const DispatchTraffic& earlier) const {
    return {network_bytes - earlier.network_bytes, row_bytes - earlier.row_bytes};
  }
};

}  // namespace moeloom
