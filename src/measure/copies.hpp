// The memory's ceiling: the fastest of several ways to move the same bytes, measured in the same state of the
// caches as what stands beside it.
//
// No way is the fastest everywhere: rows that stay in a cache want stores into it, rows that do not want
// stores around it, which read no line before they write it; a long copy wants the processor's own. So all of
// them take turns at the traffic in question, and the winner is the limit: a share above 1 says that one is
// missing here.
#pragma once

#include "moeloom/measure/paired.hpp"

#include <span>
#include <string_view>

namespace moeloom {

/// By one thread. Rows do not overlap, but that a row may be spread to itself.
struct CopyWay {
  std::string_view name;
  /// One row read once and written to each of `to`.
  void (*spread)(const float* from, Index cols, std::span<float* const> to);
  /// The sum of rows, read once each, written to `to`.
  void (*gather)(std::span<const float* const> from, Index cols, float* to);
};
std::span<const CopyWay> copy_ways();

/// Reads values and does nothing with them.
void read_row(const float* from, Index cols);

/// The way with the least p10 of seconds(way) over rounds in which all take turns: what disturbs a way only
/// adds to its time, and a limit is to be low. Collective where `seconds` is.
const CopyWay& fastest_copy(const std::function<double(const CopyWay&)>& seconds, int rounds = 7);

}  // namespace moeloom
