#include "moeloom/model/batch.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// [segments + 1], with each sequence one where nothing else is said.
std::vector<Index> offsets_of(const Batch& batch) {
  if (!batch.segment_offsets.empty()) return batch.segment_offsets;
  std::vector<Index> offsets;
  for (Index s = 0; s <= batch.sequences; ++s) offsets.push_back(s * batch.sequence_length);
  return offsets;
}

void check_padding(const Batch& batch) {
  if (batch.is_real.empty()) return;
  require(std::ssize(batch.is_real) == batch.tokens(), "is_real has a number for each token, or none");
  const std::vector<Index> offsets = offsets_of(batch);
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const auto end = batch.is_real.begin() + offsets[i + 1];
    const auto is_padding = [](std::uint8_t real) { return real == 0; };
    const auto first = std::find_if_not(batch.is_real.begin() + offsets[i], end, is_padding);
    require(std::all_of(std::find_if(first, end, is_padding), end, is_padding),
            "padding lies at the left or the right of a sequence, not between its tokens");
  }
}

}  // namespace

Index Batch::counted_targets() const {
  return static_cast<Index>(targets.size()) - std::count(targets.begin(), targets.end(), kIgnored);
}

void check_segments(const Batch& batch) {
  const std::vector<Index>& offsets = batch.segment_offsets;
  if (offsets.empty()) return check_padding(batch);
  require(offsets.front() == 0 && offsets.back() == batch.tokens(),
          "the segments of a batch begin at its first token and end behind its last");
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    require(offsets[i] < offsets[i + 1], "a segment holds at least one token");
    require(offsets[i] / batch.sequence_length == (offsets[i + 1] - 1) / batch.sequence_length,
            "a segment lies in one sequence");
  }
  check_padding(batch);
}

std::vector<Index> segments_behind_padding(const Batch& batch) {
  if (batch.is_real.empty()) return batch.segment_offsets;
  const std::vector<Index> offsets = offsets_of(batch);
  std::vector<Index> apart;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const auto begin = batch.is_real.begin() + offsets[i], end = batch.is_real.begin() + offsets[i + 1];
    const Index padding = std::find_if(begin, end, [](std::uint8_t real) { return real != 0; }) - begin;
    apart.push_back(offsets[i]);
    if (padding > 0 && padding < end - begin) apart.push_back(offsets[i] + padding);
  }
  if (apart.size() + 1 == offsets.size()) return batch.segment_offsets;
  apart.push_back(batch.tokens());
  return apart;
}

}  // namespace moeloom
