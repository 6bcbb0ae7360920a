// Which rank computes which rows: all rows of one expert from one source rank, an atom, lie on one rank, and
// a rank that holds atoms of an expert that is not its own holds a replica of it.
//
// An atom is what can move without changing a bit: the gradient of a weight is a tree sum over sources
// (tensor/tree_sum.hpp), so a rank that computes an atom gives the owner one branch of that tree. An atom on
// its own source rank needs no row to travel at all (FasterMoE's shadow, He et al. 2022).
#pragma once

#include "moeloom/comm/mesh.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

/// Rows of each expert from each rank of ep.
struct SourceCounts {
  Index ranks = 1;
  Index experts = 0;
  std::vector<std::int64_t> rows;  // [ep, E]

  Index of(Index source, Index expert) const { return rows[at(source * experts + expert)]; }
  std::span<const std::int64_t> of_source(Index source) const {
    return std::span(rows).subspan(at(source * experts), at(experts));
  }
  /// The rank that holds an expert's masters.
  Index owner(Index expert) const;
};

/// Sources [lo, hi), a branch of the tree of sums, all of whose rows of an expert one rank computes.
struct SourceBranch {
  Index lo = 0, hi = 0;
  Index rank = 0;
  Index rows = 0;
};

class ReplicaPlacement {
 public:
  ReplicaPlacement() = default;
  /// Every atom on its expert's owner.
  explicit ReplicaPlacement(SourceCounts counts);

  const SourceCounts& counts() const { return counts_; }
  Index ranks() const { return counts_.ranks; }
  Index experts() const { return counts_.experts; }
  /// The rank that computes an atom.
  Index rank_of(Index source, Index expert) const { return ranks_[at(source * counts_.experts + expert)]; }
  void move(Index source, Index expert, Index rank);

  /// Rows that a rank computes.
  Index load(Index rank) const { return loads_[at(rank)]; }
  Index fullest() const;
  Index total() const;
  /// Atoms with a row that a rank has of an expert.
  Index atoms(Index rank, Index expert) const { return atoms_[at(rank * counts_.experts + expert)]; }
  bool holds_replica(Index rank, Index expert) const {
    return atoms(rank, expert) > 0 && counts_.owner(expert) != rank;
  }
  /// Experts that a rank holds a replica of, by number.
  std::vector<Index> replicas(Index rank) const;
  Index replica_count(Index rank) const { return replica_counts_[at(rank)]; }
  /// Some atom of the expert is not on its owner.
  bool is_split(Index expert) const;
  /// The fewest branches of the tree that hold all rows of an expert, in its order.
  std::vector<SourceBranch> branches(Index expert) const;

 private:
  SourceCounts counts_;
  std::vector<std::int32_t> ranks_;  // [ep, E]
  std::vector<Index> loads_;         // [ep]
  std::vector<Index> atoms_;         // [ep, E]
  std::vector<Index> replica_counts_;
};

/// Experts as dispatchers number them where there are replicas: rank p serves numbers [p (e + S), (p + 1)
/// (e + S)), its own e = ceil(E / ep) first, then its replicas; numbers that stand for nothing have no row.
class ServedExperts {
 public:
  ServedExperts() = default;
  explicit ServedExperts(const ReplicaPlacement& placement);

  /// 0: no rank holds a replica, and experts keep their numbers.
  Index replicas_a_rank() const { return replicas_; }
  Index count() const { return count_; }
  /// Of a rank's numbers, those before its first replica.
  Index own() const { return own_; }
  /// topk_idx [N] of a source -> the numbers that serve it. kNoExpert stays.
  void translate(std::span<const std::int32_t> topk_idx, Index source,
                 std::vector<std::int32_t>& served) const;
  /// Rows of each number from each source.
  SourceCounts counts(const SourceCounts& of_experts) const;

 private:
  Index replicas_ = 0;
  Index own_ = 0;
  Index count_ = 0;
  Index experts_ = 0;
  std::vector<std::int32_t> served_;  // [ep, E]
};

}  // namespace moeloom
