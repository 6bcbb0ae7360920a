#include "experts/branch_sums.hpp"

#include "moeloom/base/parallel.hpp"
#include "tensor/tree_sum.hpp"

#include <algorithm>
#include <bit>

#include "experts/expert_arrays.hpp"

namespace moeloom {
namespace {

constexpr Index kFloatsOfTask = 16384;
constexpr Index kLine = 16;  // floats

/// The sums of branches that lie within sources [lo, hi), added up along the tree; the first one becomes it.
float* tree_sum_of(std::span<float* const> sums, std::span<const SourceBranch> branches, Index lo, Index hi,
                   Index size) {
  if (branches.empty()) return nullptr;
  if (branches.size() == 1) return sums[0];
  const Index mid = tree_split(lo, hi);
  const auto left = at(std::ranges::count_if(branches, [&](const SourceBranch& b) { return b.lo < mid; }));
  float* const first = tree_sum_of(sums.first(left), branches.first(left), lo, mid, size);
  float* const second = tree_sum_of(sums.subspan(left), branches.subspan(left), mid, hi, size);
  if (first == nullptr || second == nullptr) return first == nullptr ? second : first;
  parallel_blocks(size, kFloatsOfTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) first[i] += second[i];
  });
  return first;
}

/// A shard of one of a rank's own experts.
ExpertShard own_expert(const ExpertShard& shard, Index expert) {
  std::vector<const std::byte*> places;
  for (const auto& array : arrays_of(shard, expert)) places.push_back(array.data());
  return expert_at(shard, places);
}

}  // namespace

BranchSums::BranchSums(const ReplicaShare& share, const NodePeers& peers, const Communicator& ep,
                       RowBuffer& sums, RebalanceCounts& traffic)
    : share_(share),
      peers_(peers),
      sums_(sums),
      traffic_(traffic),
      exact_(share.own().shard.sums),
      trained_(gradient_floats(share.own().shard)),
      floats_(exact_ == nullptr ? trained_ : 2 * trained_),
      messages_(ep, Channel::kReplicas) {
  if (!share.any() || floats_ == 0) return;
  list_branches();
  // Places come before sums, in both directions.
  for (Branch& branch : of_replicas_) {
    if (!near(branch.peer)) continue;
    branch.place = &places_.emplace_back();
    messages_.receive_bytes(branch.peer, bytes_of_place(branch));
    branch.receive = receives_++;
  }
  for (Branch& branch : of_own_) {
    if (branch.peer == share.rank()) continue;
    ++receives_;
    if (!near(branch.peer)) {
      messages_.receive(branch.peer, sum_of(branch));
      continue;
    }
    branch.place = &places_.emplace_back(sums_.offset() + branch.row * sums_.cols() * Index{sizeof(float)});
    messages_.send_bytes(branch.peer, bytes_of_place(branch));
    messages_.receive_bytes(branch.peer, std::as_writable_bytes(std::span(&done_.emplace_back(), 1)));
  }
}

std::vector<SourceBranch> BranchSums::branches_of(Index expert) const {
  const ReplicaPlacement& placement = share_.placement();
  if (exact_ == nullptr) return placement.branches(expert);
  std::vector<SourceBranch> of_replicas;
  for (Index rank = 0; rank < placement.ranks(); ++rank)
    if (placement.holds_replica(rank, expert)) of_replicas.push_back({.hi = placement.ranks(), .rank = rank});
  return of_replicas;
}

/// Sums of other ranks' experts have rows of their own only where they travel. Leaves are made in the last
/// row.
void BranchSums::list_branches() {
  const ReplicaPlacement& placement = share_.placement();
  const ExpertRange held = share_.held();
  Index rows = 0;
  for (Index expert = held.begin; expert < held.begin + held.count; ++expert) {
    if (!placement.is_split(expert)) continue;
    for (const SourceBranch& each : branches_of(expert))
      of_own_.push_back(
          {.expert = expert, .sources = each, .peer = static_cast<int>(each.rank), .row = rows++});
  }
  for (const Replica& replica : share_.replicas())
    for (const SourceBranch& each : branches_of(replica.expert)) {
      if (each.rank != share_.rank()) continue;
      const auto owner = static_cast<int>(replica.owner);
      of_replicas_.push_back(
          {.expert = replica.expert, .sources = each, .peer = owner, .row = near(owner) ? 0 : rows++});
    }
  const bool leaves = exact_ != nullptr && !of_replicas_.empty();
  sums_.reshape_uninitialised(rows + leaves, kLine * ceil_div(floats_, kLine));
  if (leaves) std::fill_n(sums_.view().row(rows), trained_, 0.0f);
}

void BranchSums::sum(const ExpertShard& expert, const Branch& branch, Index first_row, float* into,
                     ConstMatrixView d_rows) {
  const ExpertPass& own = share_.own();
  ExpertShard shard = expert;
  place_gradients(own.shard, into, shard);
  rows_per_source_.assign(at(own.rows.sources), 0);
  for (Index source = branch.sources.lo; source < branch.sources.hi; ++source)
    rows_per_source_[at(source)] = share_.placement().counts().of(source, branch.expert);
  const ExpertPass of_branch{own.kernels, shard,         own.packed, {rows_per_source_, own.rows.sources},
                             own.saved,   own.workspace, own.clock};
  weight_gradients(of_branch, {{0, 1}, {first_row, first_row + branch.sources.rows}}, d_rows,
                   Write::kReplace);
}

void BranchSums::sum_leaves(Index i, float* into, ConstMatrixView d_rows) {
  const std::span<float> leaf(sums_.view().row(sums_.rows() - 1), at(trained_));
  ExactSums sums(leaf, {reinterpret_cast<std::int64_t*>(into), leaf.size()}, *exact_);
  ExpertShard shard = share_.own().saved.replicas[at(i)].shard;
  place_gradients(share_.own().shard, leaf.data(), shard);
  shard.sums = &sums;
  weight_gradients(share_.of_replica(i, shard), {{0, 1}, share_.replicas()[at(i)].rows}, d_rows,
                   Write::kReplace);
  sums.close();
}

void BranchSums::sum_replicas(ConstMatrixView d_rows) {
  auto next = of_replicas_.begin();
  for (std::size_t i = 0; i < share_.replicas().size(); ++i) {
    const Replica& replica = share_.replicas()[i];
    Index row = replica.rows.begin;
    for (; next != of_replicas_.end() && next->expert == replica.expert; ++next) {
      if (next->place != nullptr) messages_.serve_until_arrived(next->receive, 1);
      float* const into = next->place == nullptr
                              ? sum_of(*next).data()
                              : reinterpret_cast<float*>(peers_.address(next->peer, *next->place));
      if (exact_ != nullptr)
        sum_leaves(static_cast<Index>(i), into, d_rows);
      else
        sum(share_.own().saved.replicas[i].shard, *next, row, into, d_rows);
      row += next->sources.rows;
      if (next->place != nullptr) {
        messages_.send_bytes(next->peer, bytes_of_place(*next));
      } else {
        messages_.send(next->peer, sum_of(*next));
        traffic_.gradient_bytes += floats_ * Index{sizeof(float)};
      }
    }
  }
}

void BranchSums::sum_own(const ExpertChunk& chunk, ConstMatrixView d_rows, Write mode) {
  const ExpertPass& own = share_.own();
  if (of_own_.empty() || exact_ != nullptr) return weight_gradients(own, chunk, d_rows, mode);
  ExpertChunk whole{{chunk.experts.begin, chunk.experts.begin}, {chunk.rows.begin, chunk.rows.begin}};
  for (Index i = chunk.experts.begin; i < chunk.experts.end; ++i) {
    const Index expert = share_.held().begin + i, end = whole.rows.end + own.rows.of_group(i);
    const auto branches = std::ranges::equal_range(of_own_, expert, {}, &Branch::expert);
    if (branches.empty()) {
      whole.experts.end = i + 1;
      whole.rows.end = end;
      continue;
    }
    weight_gradients(own, whole, d_rows, mode);
    Index row = whole.rows.end;
    const ExpertShard one = own_expert(own.shard, i);
    for (const Branch& branch : branches) {
      if (branch.peer != share_.rank()) continue;
      sum(one, branch, row, sum_of(branch).data(), d_rows);
      row += branch.sources.rows;
    }
    whole = {{i + 1, i + 1}, {end, end}};
  }
  weight_gradients(own, whole, d_rows, mode);
}

void BranchSums::finish(Write mode) {
  messages_.serve_until_finished();
  if (exact_ != nullptr) {
    for (const Branch& branch : of_own_)
      add_sums({reinterpret_cast<const std::int64_t*>(sum_of(branch).data()), at(trained_)},
               share_.own().shard, branch.expert - share_.held().begin);
    return;
  }
  std::vector<SourceBranch> sources;
  std::vector<float*> sums;
  for (auto first = of_own_.begin(); first != of_own_.end();) {
    const auto branches = std::ranges::equal_range(first, of_own_.end(), first->expert, {}, &Branch::expert);
    sources.clear();
    sums.clear();
    for (const Branch& branch : branches) {
      sources.push_back(branch.sources);
      sums.push_back(sum_of(branch).data());
    }
    tree_sum_of(sums, sources, 0, share_.placement().ranks(), floats_);
    write_gradients(sum_of(*first), share_.own().shard, first->expert - share_.held().begin, mode);
    first = branches.end();
  }
}

/// Sources are taken from near to far in the tree, so that a replica computes at most log2(ep) branches, and
/// leaves as many and one to the owner; a single hot expert may have one of each rank instead. An exact one
/// has a sum a replica, and leaves take the memory of another one.
double BranchSums::bytes_of(Index own, Index floats, Index ranks, bool exact) {
  const Index levels = std::bit_width(at(ranks - 1));
  if (exact)
    return array_bytes((std::max(own * levels, ranks - 1) + own + 1) * kLine * ceil_div(2 * floats, kLine));
  const Index branches = std::max(own * (1 + levels), ranks) + own * levels;
  return array_bytes(branches * kLine * ceil_div(floats, kLine));
}

}  // namespace moeloom
