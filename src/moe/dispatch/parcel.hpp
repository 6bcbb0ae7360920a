// One message of rows between nodes: rows as they travel, then a number for each of their copies.
#pragma once

#include "moe/dispatch/crossing_plan.hpp"
#include "moe/dispatch/wire.hpp"

namespace moeloom {

/// Its part of a buffer that holds the messages of all routes.
struct Parcel {
  Index peer = 0;
  Index rows = 0, first_row = 0;  // tokens or sums, and the first one's number among those of all parcels
  Index copies = 0;
  Index scalars = 0;  // as many as copies, or none
  Index begin = 0;    // in floats
  Index row_floats = 0;

  Index end() const { return begin + rows * row_floats + scalars; }
  template <typename Float>
  std::span<Float> of(std::span<Float> buffer) const {
    return buffer.subspan(at(begin), at(end() - begin));
  }
  template <typename Float>
  Float* row(std::span<Float> message, Index i) const {
    return message.data() + i * row_floats;
  }
  template <typename Float>
  Float& scalar(std::span<Float> message, Index copy) const {
    return message[at(rows * row_floats + copy)];
  }
};

/// One behind the other, to or from peers [routes], with counts [routes]; `rows` says which of the counts
/// travel as rows.
std::vector<Parcel> parcels_of(std::span<const Index> peers, std::span<const CrossingCounts> counts,
                               Index CrossingCounts::*rows, Index row_floats, bool with_scalars);

}  // namespace moeloom
