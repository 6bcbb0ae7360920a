#include "moeloom/model/batch.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {

Index Batch::counted_targets() const {
  return static_cast<Index>(targets.size()) - std::count(targets.begin(), targets.end(), kIgnored);
}

void check_segments(const Batch& batch) {
  const std::vector<Index>& offsets = batch.segment_offsets;
  if (offsets.empty()) return;
  require(offsets.front() == 0 && offsets.back() == batch.tokens(),
          "the segments of a batch begin at its first token and end behind its last");
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    require(offsets[i] < offsets[i + 1], "a segment holds at least one token");
    require(offsets[i] / batch.sequence_length == (offsets[i + 1] - 1) / batch.sequence_length,
            "a segment lies in one sequence");
  }
}

}  // namespace moeloom
