#include "memory/dropout_memory.hpp"

#include "moeloom/kernels/low_rank.hpp"

#include <algorithm>
#include <set>

#include "memory/mixer_memory.hpp"

namespace moeloom {
namespace {

/// What an addition holds at once, at most: all rows may be those of one expert.
double copied_bytes(const ParameterSpec& factor, Index tokens, Index rows) {
  if (factor.placement == Placement::kWorld) return rows_bytes(std::min(tokens, kDroppedRows), factor.cols);
  const double pieces = rows_bytes(std::min(rows, kDroppedGroupRows), factor.cols);
  return std::max(pieces, rows_bytes(rows, dropped_columns(rows, factor.cols)));
}

}  // namespace

double dropout_bytes(const std::vector<ParameterSpec>& specs, const Job& job, LayerRows rows) {
  double copies = 0, of_tokens = 0;
  std::set<Index> layers;
  for (const ParameterSpec& spec : specs) {
    if (!spec.adapter || !spec.adapter->is_a || spec.adapter->dropout == 0) continue;
    copies = std::max(copies, copied_bytes(spec, job.tokens(), rows.at_once));
    if (spec.placement == Placement::kExperts)
      layers.insert(spec.layer);
    else
      of_tokens = array_bytes(job.tokens(), sizeof(std::uint64_t));
  }
  const Index kept =
      job.keeping.recompute == Recompute::kNone ? std::ssize(layers) : std::min<Index>(std::ssize(layers), 1);
  return copies + of_tokens + static_cast<double>(kept) * array_bytes(rows.at_once, sizeof(std::uint64_t));
}

}  // namespace moeloom
