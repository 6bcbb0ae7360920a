#include "moe/rebalance/rebalance_counts.hpp"

namespace moeloom {
namespace {

/// each(a's count, b's count) of every pair.
template <typename Each>
void for_each_count(RebalanceCounts& a, const RebalanceCounts& b, Each each) {
  for (std::size_t i = 0; i < a.verdicts.size(); ++i) each(a.verdicts[i], b.verdicts[i]);
  each(a.rows, b.rows);
  each(a.padded_rows_before, b.padded_rows_before);
  each(a.padded_rows_after, b.padded_rows_after);
  each(a.replicas, b.replicas);
  each(a.rows_moved, b.rows_moved);
  each(a.weight_bytes, b.weight_bytes);
  each(a.gradient_bytes, b.gradient_bytes);
  each(a.uneven_nanoseconds, b.uneven_nanoseconds);
  each(a.saved_nanoseconds, b.saved_nanoseconds);
}

}  // namespace

void RebalanceCounts::add(const ReplicaPlan& plan, Index rank) {
  const ReplicaPlacement& placement = plan.placement;
  if (placement.experts() == 0) return;
  uneven_nanoseconds += plan.before.total() - plan.before.even;
  saved_nanoseconds += plan.before.total() - plan.after.total();
  if (rank == 0) {
    ++verdicts[static_cast<std::size_t>(plan.verdict)];
    rows += placement.total();
    padded_rows_before += placement.ranks() * plan.fullest_before;
    padded_rows_after += placement.ranks() * plan.fullest_after;
  }
  if (!plan.moves()) return;
  replicas += placement.replica_count(rank);
  for (const Index expert : placement.replicas(rank))
    for (Index source = 0; source < placement.ranks(); ++source)
      if (placement.rank_of(source, expert) == rank) rows_moved += placement.counts().of(source, expert);
}

RebalanceCounts& RebalanceCounts::operator+=(const RebalanceCounts& more) {
  for_each_count(*this, more, [](auto& a, auto b) { a += b; });
  return *this;
}

RebalanceCounts& RebalanceCounts::operator-=(const RebalanceCounts& earlier) {
  for_each_count(*this, earlier, [](auto& a, auto b) { a -= b; });
  return *this;
}

RebalanceCounts total(const std::vector<RebalanceCounts>& layers) {
  RebalanceCounts all;
  for (const RebalanceCounts& layer : layers) all += layer;
  return all;
}

std::vector<RebalanceCounts> sum_over(const Communicator& ranks, std::vector<RebalanceCounts> layers) {
  std::vector<std::int64_t> all;
  for (RebalanceCounts& layer : layers)
    for_each_count(layer, layer, [&](auto& a, auto) { all.push_back(a); });
  ranks.all_sum(all);
  auto next = all.begin();
  for (RebalanceCounts& layer : layers) for_each_count(layer, layer, [&](auto& a, auto) { a = *next++; });
  return layers;
}

}  // namespace moeloom
