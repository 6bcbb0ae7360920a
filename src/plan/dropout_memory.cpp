#include "dropout_memory.hpp"

#include "moeloom/kernels/low_rank.hpp"

#include <algorithm>
#include <set>

#include "mixer_memory.hpp"

namespace moeloom {
namespace {

/// What an addition holds at once, where groups have rows alike.
Index dropped_rows(const ParameterSpec& factor, const MicroBatchShape& batch) {
  if (factor.placement == Placement::kWorld) return std::min(batch.tokens, kDroppedRows);
  const Index of_a_group = ceil_div(batch.rows, std::max<Index>(factor.groups, 1));
  return std::min(batch.rows, std::max(kDroppedGroupRows, of_a_group));
}

}  // namespace

double dropout_bytes(const std::vector<ParameterSpec>& specs, const MicroBatchShape& batch) {
  double copies = 0, of_tokens = 0;
  std::set<Index> layers;
  for (const ParameterSpec& spec : specs) {
    if (!spec.adapter || !spec.adapter->is_a || spec.adapter->dropout == 0) continue;
    copies = std::max(copies, rows_bytes(dropped_rows(spec, batch), spec.cols));
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
