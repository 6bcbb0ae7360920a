#include "moe/rebalance/replica_placement.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/moe/routing/chosen_experts.hpp"
#include "tensor/tree_sum.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {
namespace {

/// Appends the branches of sources [lo, hi). What has no row lies anywhere.
void add_branches(const ReplicaPlacement& placement, Index expert, Index lo, Index hi,
                  std::vector<SourceBranch>& branches) {
  SourceBranch branch{.lo = lo, .hi = hi, .rank = -1};
  bool on_one_rank = true;
  for (Index source = lo; source < hi; ++source) {
    const Index rows = placement.counts().of(source, expert), rank = placement.rank_of(source, expert);
    if (rows == 0) continue;
    on_one_rank = on_one_rank && (branch.rank < 0 || branch.rank == rank);
    branch.rank = rank;
    branch.rows += rows;
  }
  if (branch.rows == 0) return;
  if (on_one_rank) {
    branches.push_back(branch);
    return;
  }
  const Index mid = tree_split(lo, hi);
  add_branches(placement, expert, lo, mid, branches);
  add_branches(placement, expert, mid, hi, branches);
}

}  // namespace

Index SourceCounts::owner(Index expert) const {
  const Index least = experts / ranks, longer = experts % ranks;  // as experts_of() deals them
  const Index in_longer = longer * (least + 1);
  return expert < in_longer ? expert / (least + 1) : longer + (expert - in_longer) / least;
}

ReplicaPlacement::ReplicaPlacement(SourceCounts counts) : counts_(std::move(counts)) {
  require(std::ssize(counts_.rows) == counts_.ranks * counts_.experts, "counts must be [ep, experts]");
  ranks_.resize(counts_.rows.size());
  loads_.assign(at(counts_.ranks), 0);
  replica_counts_.assign(at(counts_.ranks), 0);
  atoms_.assign(counts_.rows.size(), 0);
  for (Index expert = 0; expert < experts(); ++expert) {
    const Index owner = counts_.owner(expert);
    for (Index source = 0; source < ranks(); ++source) {
      ranks_[at(source * experts() + expert)] = static_cast<std::int32_t>(owner);
      loads_[at(owner)] += counts_.of(source, expert);
      atoms_[at(owner * experts() + expert)] += counts_.of(source, expert) > 0;
    }
  }
}

void ReplicaPlacement::move(Index source, Index expert, Index rank) {
  const Index rows = counts_.of(source, expert), before = rank_of(source, expert);
  ranks_[at(source * experts() + expert)] = static_cast<std::int32_t>(rank);
  if (rows == 0 || rank == before) return;
  const auto count_replicas = [&](Index change) {
    for (const Index each : {before, rank}) replica_counts_[at(each)] += change * holds_replica(each, expert);
  };
  count_replicas(-1);
  loads_[at(before)] -= rows;
  loads_[at(rank)] += rows;
  --atoms_[at(before * experts() + expert)];
  ++atoms_[at(rank * experts() + expert)];
  count_replicas(1);
}

Index ReplicaPlacement::fullest() const {
  return std::ranges::max_element(loads_) - loads_.begin();
}

Index ReplicaPlacement::total() const {
  return std::reduce(loads_.begin(), loads_.end(), Index{0});
}

std::vector<Index> ReplicaPlacement::replicas(Index rank) const {
  std::vector<Index> held;
  if (replica_count(rank) == 0) return held;
  for (Index expert = 0; expert < experts(); ++expert)
    if (holds_replica(rank, expert)) held.push_back(expert);
  return held;
}

bool ReplicaPlacement::is_split(Index expert) const {
  for (Index rank = 0; rank < ranks(); ++rank)
    if (holds_replica(rank, expert)) return true;
  return false;
}

std::vector<SourceBranch> ReplicaPlacement::branches(Index expert) const {
  std::vector<SourceBranch> all;
  add_branches(*this, expert, 0, ranks(), all);
  return all;
}

ServedExperts::ServedExperts(const ReplicaPlacement& placement) : experts_(placement.experts()) {
  const Index ranks = placement.ranks();
  for (Index rank = 0; rank < ranks; ++rank) replicas_ = std::max(replicas_, placement.replica_count(rank));
  own_ = ceil_div(experts_, ranks);
  count_ = ranks * (own_ + replicas_);
  served_.resize(at(ranks * experts_));
  std::vector<Index> of_replica(at(ranks * experts_), -1);  // [rank, E]
  for (Index rank = 0; rank < ranks; ++rank) {
    Index next = rank * (own_ + replicas_) + own_;
    for (const Index expert : placement.replicas(rank)) of_replica[at(rank * experts_ + expert)] = next++;
  }
  for (Index source = 0; source < ranks; ++source)
    for (Index expert = 0; expert < experts_; ++expert) {
      const Index rank = placement.rank_of(source, expert);
      const Index replica = of_replica[at(rank * experts_ + expert)];
      const Index first = experts_of(experts_, ranks, rank).begin;
      const Index served = replica >= 0 ? replica : rank * (own_ + replicas_) + expert - first;
      // Of an atom without a row nobody may hold a replica; no choice names it.
      const bool has_rows = placement.counts().of(source, expert) > 0;
      served_[at(source * experts_ + expert)] = has_rows ? static_cast<std::int32_t>(served) : kNoExpert;
    }
}

void ServedExperts::translate(std::span<const std::int32_t> topk_idx, Index source,
                              std::vector<std::int32_t>& served) const {
  const std::span<const std::int32_t> mine = std::span(served_).subspan(at(source * experts_), at(experts_));
  served.resize(topk_idx.size());
  std::ranges::transform(topk_idx, served.begin(), [&](std::int32_t expert) {
    return expert == kNoExpert ? kNoExpert : mine[at(expert)];
  });
}

SourceCounts ServedExperts::counts(const SourceCounts& of_experts) const {
  SourceCounts counts{of_experts.ranks, count_, std::vector<std::int64_t>(at(of_experts.ranks * count_))};
  for (Index source = 0; source < of_experts.ranks; ++source)
    for (Index expert = 0; expert < experts_; ++expert)
      if (const Index rows = of_experts.of(source, expert); rows > 0)
        counts.rows[at(source * count_ + served_[at(source * experts_ + expert)])] += rows;
  return counts;
}

}  // namespace moeloom
