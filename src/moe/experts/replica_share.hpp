// What of a pass are rows of a rank's own experts, and what those of experts of other ranks.
#pragma once

#include "moe/dispatch/dispatch_plan.hpp"
#include "moe/experts/experts.hpp"

#include <vector>

namespace moeloom {

/// An expert of another rank, of which this one has some rows.
struct Replica {
  Index expert = 0;  // of all
  Index owner = 0;   // rank of ep
  Index group = 0;   // of the pass's rows
  Stretch rows = {};
};

/// Of one pass, which must outlive it. Throws ShapeError where the plan is not that of the pass's rows.
class ReplicaShare {
 public:
  ReplicaShare(const ExpertPass& pass, const DispatchPlan& plan, Index rank);

  Index rank() const { return rank_; }
  /// Whether any rank holds a replica.
  bool any() const { return placement_ != nullptr; }
  /// Of all ranks, where there are any.
  const ReplicaPlacement& placement() const { return *placement_; }
  ExpertRange held() const { return held_; }

  /// The pass of this rank's own experts.
  const ExpertPass& own() const { return own_; }
  /// Own experts among groups of the pass, and their rows.
  ExpertChunk own_in(Stretch groups) const;
  const std::vector<Replica>& replicas() const { return replicas_; }
  /// Whether there is a replicas()[i] among those groups.
  bool replica_is_in(Index i, Stretch groups) const {
    return i < std::ssize(replicas_) && replicas_[at(i)].group < groups.end;
  }
  /// Of replicas()[i]; `shard` is of that expert alone.
  ExpertPass of_replica(Index i, const ExpertShard& shard) const;

 private:
  const ExpertPass& pass_;
  Index rank_;
  const ReplicaPlacement* placement_ = nullptr;
  ExpertRange held_;
  ExpertPass own_;
  std::vector<Index> first_rows_;  // [own experts + 1]
  std::vector<Replica> replicas_;
  PackedExperts no_faces_;  // of replicas, whose masters are read
};

}  // namespace moeloom
