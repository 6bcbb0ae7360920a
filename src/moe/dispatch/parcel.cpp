#include "dispatch/parcel.hpp"

namespace moeloom {

std::vector<Parcel> parcels_of(std::span<const Index> peers, std::span<const CrossingCounts> counts,
                               Index CrossingCounts::*rows, Index row_floats, bool with_scalars) {
  std::vector<Parcel> parcels;
  Parcel next{.row_floats = row_floats};
  for (std::size_t route = 0; route < peers.size(); ++route) {
    next.peer = peers[route];
    next.rows = counts[route].*rows;
    next.copies = counts[route].copies;
    next.scalars = with_scalars ? next.copies : 0;
    parcels.push_back(next);
    next.begin = next.end();
    next.first_row += next.rows;
  }
  return parcels;
}

}  // namespace moeloom
