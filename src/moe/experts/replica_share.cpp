#include "experts/replica_share.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {
namespace {

GroupedRows groups(const GroupedRows& rows, Index first, Index count) {
  return {rows.rows_per_source.subspan(at(first * rows.sources), at(count * rows.sources)), rows.sources};
}

ExpertPass with(const ExpertPass& pass, const ExpertShard& shard, const PackedExperts& packed,
                const GroupedRows& rows) {
  return {pass.kernels, shard, packed, rows, pass.saved, pass.workspace, pass.clock};
}

}  // namespace

ReplicaShare::ReplicaShare(const ExpertPass& pass, const DispatchPlan& plan, Index rank)
    : pass_(pass),
      rank_(rank),
      placement_(plan.replicas.moves() ? &plan.replicas.placement : nullptr),
      own_(with(pass, pass.shard, pass.packed, groups(pass.rows, 0, pass.shard.experts))) {
  const Index own = pass.shard.experts;
  held_ = any() ? experts_of(placement_->experts(), placement_->ranks(), rank) : ExpertRange{0, own};
  require(held_.count == own, "experts are run by the plan of their dispatcher");
  first_rows_.push_back(0);
  for (Index expert = 0; expert < own; ++expert)
    first_rows_.push_back(first_rows_.back() + own_.rows.of_group(expert));
  Index row = first_rows_.back();
  if (any()) {
    Index group = plan.replicas.served.own();
    for (const Index expert : placement_->replicas(rank)) {
      const Index rows = pass.rows.of_group(group);
      replicas_.push_back({expert, placement_->counts().owner(expert), group++, {row, row + rows}});
      row += rows;
    }
  }
  require(row == pass.rows.total(), "experts are run by the plan of their dispatcher");
}

ExpertChunk ReplicaShare::own_in(Stretch some) const {
  const Stretch experts{std::min(some.begin, held_.count), std::min(some.end, held_.count)};
  return {experts, {first_rows_[at(experts.begin)], first_rows_[at(experts.end)]}};
}

ExpertPass ReplicaShare::of_replica(Index i, const ExpertShard& shard) const {
  return with(pass_, shard, no_faces_, groups(pass_.rows, replicas_[at(i)].group, 1));
}

}  // namespace moeloom
