#include "moe/dispatch/row_buffer.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// As NodeMemory asks of who grows.
Index grown(Index held) {
  return static_cast<Index>(RowBuffer::kGrowth * static_cast<double>(held));
}

}  // namespace

/// Slices, no two of which have as many rows, make it grow.
double RowBuffer::bytes_of(const TripShape& trip) {
  const bool in_node_memory =
      trip.kind == DispatcherKind::kShared || trip.kind == DispatcherKind::kHierarchical;
  const Index rows = trip.rows.at_once;
  return rows_bytes(trip.rows.sliced() && in_node_memory ? grown(rows) : rows, {trip.cols});
}

void RowBuffer::reshape_uninitialised(Index rows, Index cols) {
  require(rows >= 0 && cols >= 0, "a row buffer has no negative size");
  const Index bytes = rows * cols * static_cast<Index>(sizeof(float));
  if (!memory_) {
    own_.reshape_uninitialised(rows, cols);
  } else if (block_.data() == nullptr || bytes > block_.bytes()) {
    const Index least = grown(block_.bytes());
    block_ = {};
    block_ = {memory_, std::max(bytes, least)};
  }
  rows_ = rows;
  cols_ = cols;
}

void RowBuffer::reshape_in(const std::shared_ptr<NodeMemory>& memory, Index rows, Index cols) {
  if (memory_ != memory) *this = RowBuffer(memory);
  reshape_uninitialised(rows, cols);
}

float* RowBuffer::data() const {
  if (!memory_) return const_cast<float*>(own_.view().data);
  return reinterpret_cast<float*>(block_.data());
}

}  // namespace moeloom
