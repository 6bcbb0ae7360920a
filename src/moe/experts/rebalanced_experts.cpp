#include "moeloom/moe/experts/rebalanced_experts.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/tensor/tree_sum.hpp"

#include <algorithm>

namespace moeloom {

/// This rank's share of a pass: the stretch of its own experts' rows, and that of its replicas'.
struct RebalancedExperts::Share {
  const ReplicaPlacement& placement;
  Index rank;
  std::vector<Index> replicas;  // experts of which it holds one
  ExpertRange held;             // its own experts
  GroupedRows own, of_replicas;
  ExpertChunk own_chunk, replica_chunk;

  Share(const ExpertPass& pass, const DispatchPlan& plan, Index rank_of_ep)
      : placement(plan.replicas.placement),
        rank(rank_of_ep),
        replicas(placement.replicas(rank)),
        held(experts_of(placement.experts(), placement.ranks(), rank)),
        own(groups(pass.rows, 0, held.count)),
        of_replicas(groups(pass.rows, first_replica(pass, plan), std::ssize(replicas))) {
    const Index own_rows = own.total(), all = pass.saved.rows.rows();
    own_chunk = {{0, held.count}, {0, own_rows}};
    replica_chunk = {{0, std::ssize(replicas)}, {own_rows, all}};
    require(pass.shard.experts == held.count && own_rows + of_replicas.total() == all,
            "rebalanced experts need the plan of their dispatcher");
  }

  Index owner(Index expert) const { return placement.counts().owner(expert); }
  /// The replicas' weights as a shard, which no gradient belongs to.
  ExpertShard replica_shard(const ExpertPass& pass) const {
    return {.experts = std::ssize(replicas),
            .gate_up = pass.saved.replica_gate_up,
            .down = pass.saved.replica_down,
            .d_gate_up = {},
            .d_down = {},
            .activation = pass.shard.activation};
  }

 private:
  static Index first_replica(const ExpertPass& pass, const DispatchPlan& plan) {
    return plan.replicas.moves() ? plan.replicas.served.own() : pass.rows.groups();
  }
  static GroupedRows groups(const GroupedRows& rows, Index first, Index count) {
    return {rows.rows_per_source.subspan(at(first * rows.sources), at(count * rows.sources)), rows.sources,
            rows.between};
  }
};

/// Gradients of an expert over some of its sources, and the row of `sums_` that they have.
struct RebalancedExperts::Branch {
  Index expert;
  SourceBranch sources;
  Index sum;
};

namespace {

Index gate_up_size(const ExpertShard& shard) {
  return 2 * shard.down.cols * shard.gate_up.cols;
}
Index down_size(const ExpertShard& shard) {
  return shard.down.cols * shard.gate_up.cols;
}

MatrixView rows_of_expert(MatrixView stacked, Index expert, Index rows_each) {
  return stacked.rows_from(expert * rows_each, rows_each);
}
MatrixView gate_up_of(MatrixView stacked, const ExpertShard& shard, Index expert) {
  return rows_of_expert(stacked, expert, 2 * shard.down.cols);
}
MatrixView down_of(MatrixView stacked, const ExpertShard& shard, Index expert) {
  return rows_of_expert(stacked, expert, shard.gate_up.cols);
}

/// The two gradients in a row of sums.
MatrixView gate_up_sum(float* sum, const ExpertShard& shard) {
  return {sum, 2 * shard.down.cols, shard.gate_up.cols};
}
MatrixView down_sum(float* sum, const ExpertShard& shard) {
  return {sum + gate_up_size(shard), shard.gate_up.cols, shard.down.cols};
}

/// What travels of a row of sums: nothing of what is frozen.
std::span<float> trained(float* sum, const ExpertShard& shard) {
  const Index gate_up = shard.d_gate_up.rows > 0 ? gate_up_size(shard) : 0;
  const Index down = shard.d_down.rows > 0 ? down_size(shard) : 0;
  return {sum + (gate_up > 0 ? 0 : gate_up_size(shard)), at(gate_up + down)};
}

Interlude progress_of(Messages& messages) {
  return Interlude::calling<&Messages::progress>(messages);
}

}  // namespace

void RebalancedExperts::send_weights(const ExpertPass& pass, const Share& share, Messages& messages) {
  const ExpertShard& shard = pass.shard;
  ExpertActivations& saved = pass.saved;
  const auto count = std::ssize(share.replicas);
  saved.replica_gate_up.reshape_uninitialised(count * 2 * shard.down.cols, shard.gate_up.cols);
  saved.replica_down.reshape_uninitialised(count * shard.gate_up.cols, shard.down.cols);
  for (Index i = 0; i < count; ++i) {
    const auto owner = static_cast<int>(share.owner(share.replicas[at(i)]));
    messages.receive(owner, gate_up_of(saved.replica_gate_up, shard, i).flat());
    messages.receive(owner, down_of(saved.replica_down, shard, i).flat());
  }
  const Index ranks = share.placement.ranks();
  for (Index step = 1; step < ranks; ++step) {
    const Index to = (share.rank + step) % ranks;
    for (Index i = 0; i < share.held.count; ++i) {
      if (!share.placement.holds_replica(to, share.held.begin + i)) continue;
      for (const MatrixView weight : {gate_up_of(shard.gate_up, shard, i), down_of(shard.down, shard, i)}) {
        messages.send(static_cast<int>(to), weight.flat());
        traffic_.weight_bytes += static_cast<Index>(weight.flat().size_bytes());
      }
    }
  }
}

void RebalancedExperts::forward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip) {
  pass.clock.enter(Phase::kDispatch);
  dispatcher.await(trip, 0);
  Share share(pass, trip.plan, dispatcher.ep().rank());
  Messages messages(dispatcher.ep());
  send_weights(pass, share, messages);
  share.own.between = share.of_replicas.between = progress_of(messages);

  pass.clock.enter(Phase::kExperts);
  prepare_forward(pass);
  forward_chunk({pass.kernels, pass.shard, pass.packed, share.own, pass.saved, pass.workspace, pass.clock},
                share.own_chunk);
  if (!share.replicas.empty()) {
    pass.clock.enter(Phase::kDispatch);
    messages.wait_for(0, 2 * std::ssize(share.replicas));
    pass.clock.enter(Phase::kExperts);
    const ExpertShard replicas = share.replica_shard(pass);
    forward_chunk(
        {pass.kernels, replicas, no_faces_, share.of_replicas, pass.saved, pass.workspace, pass.clock},
        share.replica_chunk);
  }
  pass.clock.enter(Phase::kCombine);
  messages.finish();
  dispatcher.send_back(trip, 0);
}

/// Of replicas those that this rank sums, of own split experts all, in the order in which they travel.
std::vector<RebalancedExperts::Branch> RebalancedExperts::list_branches(const Share& share,
                                                                        bool of_replicas) const {
  std::vector<Branch> branches;
  const auto add = [&](Index expert) {
    for (const SourceBranch& each : share.placement.branches(expert))
      if (!of_replicas || each.rank == share.rank) branches.push_back({expert, each, std::ssize(branches)});
  };
  if (of_replicas) {
    for (const Index expert : share.replicas) add(expert);
  } else {
    for (Index expert = share.held.begin; expert < share.held.begin + share.held.count; ++expert)
      if (share.placement.is_split(expert)) add(expert);
  }
  return branches;
}

/// Rows of the branches lie side by side from first_row on.
void RebalancedExperts::sum_branches(const ExpertPass& pass, const Share& share, Index first_row,
                                     std::span<const Branch> branches, ConstMatrixView d_rows) {
  const Index sources = share.placement.ranks();
  group_rows_.assign(branches.size() * at(sources), 0);
  gate_up_targets_.clear();
  down_targets_.clear();
  for (std::size_t i = 0; i < branches.size(); ++i) {
    const auto& [expert, of_sources, sum] = branches[i];
    gate_up_targets_.push_back(gate_up_sum(sums_.row(sum), pass.shard));
    down_targets_.push_back(down_sum(sums_.row(sum), pass.shard));
    for (Index source = of_sources.lo; source < of_sources.hi; ++source)
      group_rows_[i * at(sources) + at(source)] = share.placement.counts().of(source, expert);
  }
  weight_gradients(pass, first_row, {group_rows_, sources, share.own.between}, d_rows,
                   {gate_up_targets_, down_targets_}, Write::kReplace);
}

/// Experts that nobody has a replica of straight into the shard's gradients; the own branches of the others
/// into their sums.
void RebalancedExperts::sum_own(const ExpertPass& pass, const Share& share, std::span<const Branch> branches,
                                ConstMatrixView d_rows, Write gradients) {
  const ExpertPass own{pass.kernels, pass.shard,     pass.packed, share.own,
                       pass.saved,   pass.workspace, pass.clock};
  Stretch experts{0, 0};  // a run of whole ones
  Index first_row = 0, row = 0;
  const auto end_run = [&] {
    weight_gradients(own, ExpertChunk{experts, {first_row, row}}, d_rows, gradients);
  };
  auto next = branches.begin();
  std::vector<Branch> mine;
  for (Index i = 0; i < share.held.count; ++i) {
    const Index expert = share.held.begin + i, rows = share.own.of_group(i);
    if (!share.placement.is_split(expert)) {
      experts.end = i + 1;
      row += rows;
      continue;
    }
    end_run();
    mine.clear();
    for (; next != branches.end() && next->expert == expert; ++next)
      if (next->sources.rank == share.rank) mine.push_back(*next);
    sum_branches(own, share, row, mine, d_rows);
    row += rows;
    first_row = row;
    experts = {i + 1, i + 1};
  }
  end_run();
}

namespace {

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
  add(ConstMatrixView(second, 1, size), MatrixView(first, 1, size));
  return first;
}

void write(ConstMatrixView sum, MatrixView gradient, Write mode) {
  if (mode == Write::kAdd)
    add(sum, gradient);
  else
    copy(sum, gradient);
}

}  // namespace

void RebalancedExperts::add_up(const ExpertPass& pass, const Share& share, std::span<const Branch> branches,
                               Write gradients) {
  const ExpertShard& shard = pass.shard;
  std::vector<SourceBranch> of_sources;
  std::vector<float*> sums;
  while (!branches.empty()) {
    const Index expert = branches.front().expert, i = expert - share.held.begin;
    const Index first = branches.front().sum;
    of_sources.clear();
    sums.clear();
    for (; !branches.empty() && branches.front().expert == expert; branches = branches.subspan(1)) {
      of_sources.push_back(branches.front().sources);
      sums.push_back(trained(sums_.row(branches.front().sum), shard).data());
    }
    const auto size = std::ssize(trained(sums_.row(0), shard));
    tree_sum_of(sums, of_sources, 0, share.placement.ranks(), size);
    float* const sum = sums_.row(first);
    if (shard.d_gate_up.rows > 0)
      write(gate_up_sum(sum, shard), gate_up_of(shard.d_gate_up, shard, i), gradients);
    if (shard.d_down.rows > 0) write(down_sum(sum, shard), down_of(shard.d_down, shard, i), gradients);
  }
}

void RebalancedExperts::backward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip,
                                 Write gradients) {
  pass.clock.enter(Phase::kDispatch);
  dispatcher.await(trip, 0);
  Share share(pass, trip.plan, dispatcher.ep().rank());
  const ExpertShard& shard = pass.shard;
  const bool trains = shard.d_gate_up.rows > 0 || shard.d_down.rows > 0;
  std::vector<Branch> of_replicas, of_own;
  if (trains) of_replicas = list_branches(share, true), of_own = list_branches(share, false);
  for (Branch& branch : of_replicas) branch.sum += std::ssize(of_own);
  sums_.reshape_uninitialised(std::ssize(of_own) + std::ssize(of_replicas),
                              gate_up_size(shard) + down_size(shard));
  Messages messages(dispatcher.ep());
  for (const Branch& branch : of_own)
    if (branch.sources.rank != share.rank)
      messages.receive(static_cast<int>(branch.sources.rank), trained(sums_.row(branch.sum), shard));
  share.own.between = share.of_replicas.between = progress_of(messages);

  pass.clock.enter(Phase::kExperts);
  prepare_backward(pass);
  if (!share.replicas.empty()) {
    const ExpertShard replicas = share.replica_shard(pass);
    backward_chunk(
        {pass.kernels, replicas, no_faces_, share.of_replicas, pass.saved, pass.workspace, pass.clock},
        share.replica_chunk, trip.rows);
    sum_branches(pass, share, share.replica_chunk.rows.begin, of_replicas, trip.rows);
    for (const Branch& branch : of_replicas) {
      const std::span<const float> sum = trained(sums_.row(branch.sum), shard);
      messages.send(static_cast<int>(share.owner(branch.expert)), sum);
      traffic_.gradient_bytes += static_cast<Index>(sum.size_bytes());
    }
  }
  const ExpertPass own{pass.kernels, pass.shard,     pass.packed, share.own,
                       pass.saved,   pass.workspace, pass.clock};
  backward_chunk(own, share.own_chunk, trip.rows);
  if (trains) sum_own(pass, share, of_own, trip.rows, gradients);
  pass.clock.enter(Phase::kCombine);
  messages.finish();
  add_up(pass, share, of_own, gradients);
  dispatcher.send_back(trip, 0);
}

}  // namespace moeloom
