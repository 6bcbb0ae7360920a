#include "dropout_memory.hpp"

#include "moeloom/kernels/low_rank.hpp"

#include <algorithm>
#include <set>

#include "mixer_memory.hpp"

namespace moeloom {
namespace {

/// What an addition holds at once, at most: all rows may be those of one expert.
double copied_bytes(const ParameterSpec& factor, const MicroBatchShape& batch) {
  if (factor.placement == Placement::kWorld)
    return rows_bytes(std::min(batch.tokens, kDroppedRows), factor.cols);
  const double pieces = rows_bytes(std::min(batch.rows, kDroppedGroupRows), factor.cols);
  return std::max(pieces, rows_bytes(batch.rows, dropped_columns(batch.rows, factor.cols)));
}

}  // namespace

double dropout_bytes(const std::vector<ParameterSpec>& specs, const MicroBatchShape& batch) {
  double copies = 0, of_tokens = 0;
  std::set<Index> layers;
  for (const ParameterSpec& spec : specs) {
    if (!spec.adapter || !spec.adapter->is_a || spec.adapter->dropout == 0) continue;
    copies = std::max(copies, copied_bytes(spec, batch));
    if (spec.placement == Placement::kExperts)
      layers.insert(spec.layer);
    else
      of_tokens = array_bytes(batch.tokens, sizeof(std::uint64_t));
  }
  const Index kept =
      batch.recompute == Recompute::kNone ? std::ssize(layers) : std::min<Index>(std::ssize(layers), 1);
  return copies + of_tokens + static_cast<double>(kept) * array_bytes(batch.rows, sizeof(std::uint64_t));
}

}  // namespace moeloom
