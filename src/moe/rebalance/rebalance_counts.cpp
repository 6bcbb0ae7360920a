#include "moeloom/moe/rebalance/rebalance_counts.hpp"

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
}

}  // namespace

void RebalanceCounts::add(const ReplicaPlan& plan, Index rank) {
  const ReplicaPlacement& placement = plan.placement;
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

RebalanceCounts sum_over(const Communicator& ranks, RebalanceCounts counts) {
  std::vector<std::int64_t> all;
  for_each_count(counts, counts, [&](auto& a, auto) { all.push_back(a); });
  ranks.all_sum(all);
  auto next = all.begin();
  for_each_count(counts, counts, [&](auto& a, auto) { a = *next++; });
  return counts;
}

RebalanceCounts RebalanceCounts::operator-(const RebalanceCounts& earlier) const {
  RebalanceCounts difference = *this;
  for_each_count(difference, earlier, [](auto& a, auto b) { a -= b; });
  return difference;
}

}  // namespace moeloom
