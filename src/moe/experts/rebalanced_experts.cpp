#include "moeloom/moe/experts/rebalanced_experts.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/meanwhile.hpp"
#include "moeloom/tensor/tree_sum.hpp"

#include <algorithm>
#include <array>
#include <bit>

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
            .activation = pass.shard.activation,
            .biases = {.gate_up = pass.saved.replica_gate_up_bias, .down = pass.saved.replica_down_bias}};
  }

 private:
  static Index first_replica(const ExpertPass& pass, const DispatchPlan& plan) {
    return plan.replicas.moves() ? plan.replicas.served.own() : pass.rows.groups();
  }
  static GroupedRows groups(const GroupedRows& rows, Index first, Index count) {
    return {rows.rows_per_source.subspan(at(first * rows.sources), at(count * rows.sources)), rows.sources};
  }
};

/// Gradients of an expert over some of its sources, and the row of `sums_` that they have.
struct RebalancedExperts::Branch {
  Index expert;
  SourceBranch sources;
  Index sum;
};

namespace {

MatrixView rows_of_expert(MatrixView stacked, Index expert, Index rows_each) {
  return stacked.rows_from(expert * rows_each, rows_each);
}

/// One expert's part of what is stacked: weights of a shard, or their gradients.
struct ExpertParts {
  MatrixView gate_up, down, gate_up_bias, down_bias;
  std::array<MatrixView, 4> all() const { return {gate_up, down, gate_up_bias, down_bias}; }
};

/// What is not there has no element.
ExpertParts parts_of(const ExpertParts& stacked, const ExpertShard& shard, Index expert) {
  const auto part = [&](MatrixView all, Index rows_each) {
    return all.rows == 0 ? MatrixView() : rows_of_expert(all, expert, rows_each);
  };
  return {part(stacked.gate_up, 2 * shard.down.cols), part(stacked.down, shard.gate_up.cols),
          part(stacked.gate_up_bias, 1), part(stacked.down_bias, 1)};
}
ExpertParts weights_of(const ExpertShard& shard) {
  return {shard.gate_up, shard.down, shard.biases.gate_up, shard.biases.down};
}
ExpertParts gradients_of(const ExpertShard& shard) {
  return {shard.d_gate_up, shard.d_down, shard.biases.d_gate_up, shard.biases.d_down};
}

/// The gradients of one expert side by side in a row of sums, of what is trained.
ExpertParts in_sums(float* sum, const ExpertShard& shard) {
  const Index hidden = shard.gate_up.cols, inter = shard.down.cols;
  const auto next = [&](bool is_trained, Index rows, Index cols) {
    if (!is_trained) return MatrixView();
    const MatrixView part(sum, rows, cols);
    sum += part.size();
    return part;
  };
  const ExpertParts trained = gradients_of(shard);
  // A braced list is evaluated from left to right.
  return {next(trained.gate_up.rows > 0, 2 * inter, hidden), next(trained.down.rows > 0, hidden, inter),
          next(trained.gate_up_bias.rows > 0, 2 * inter, 1), next(trained.down_bias.rows > 0, hidden, 1)};
}
Index sum_size(const ExpertShard& shard) {
  Index size = 0;
  for (const MatrixView& part : gradients_of(shard).all()) size += part.size();
  return shard.experts == 0 ? 0 : size / shard.experts;
}

}  // namespace

void RebalancedExperts::send_weights(const ExpertPass& pass, const Share& share, Messages& messages) {
  const ExpertShard& shard = pass.shard;
  require(shard.gate_up_halves.data == nullptr && shard.d_gate_up_halves.data == nullptr,
          "replicas are of experts whose weights and gradients are fp32");
  ExpertActivations& saved = pass.saved;
  const auto count = std::ssize(share.replicas);
  saved.replica_gate_up.reshape_uninitialised(count * 2 * shard.down.cols, shard.gate_up.cols);
  saved.replica_down.reshape_uninitialised(count * shard.gate_up.cols, shard.down.cols);
  if (shard.biases.any()) {
    saved.replica_gate_up_bias.reshape_uninitialised(count, shard.biases.gate_up.cols);
    saved.replica_down_bias.reshape_uninitialised(count, shard.biases.down.cols);
  }
  const ExpertParts replicas{saved.replica_gate_up, saved.replica_down, saved.replica_gate_up_bias,
                             saved.replica_down_bias};
  for (Index i = 0; i < count; ++i)
    for (const MatrixView& weight : parts_of(replicas, shard, i).all())
      if (weight.size() > 0)
        messages.receive(static_cast<int>(share.owner(share.replicas[at(i)])), weight.flat());
  const Index ranks = share.placement.ranks();
  for (Index step = 1; step < ranks; ++step) {
    const Index to = (share.rank + step) % ranks;
    for (Index i = 0; i < share.held.count; ++i) {
      if (!share.placement.holds_replica(to, share.held.begin + i)) continue;
      for (const MatrixView& weight : parts_of(weights_of(shard), shard, i).all()) {
        if (weight.size() == 0) continue;
        messages.send(static_cast<int>(to), weight.flat());
        traffic_.weight_bytes += static_cast<Index>(weight.flat().size_bytes());
      }
    }
  }
}

void RebalancedExperts::forward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip) {
  pass.clock.enter(Phase::kDispatch);
  dispatcher.await_all(trip);
  Share share(pass, trip.plan, dispatcher.ep().rank());
  Messages messages(dispatcher.ep(), Channel::kReplicas);
  send_weights(pass, share, messages);
  const Meanwhile travelling(Interlude::calling<&Messages::progress>(messages));

  const auto run = trip.one_way ? keep_chunk : forward_chunk;
  pass.clock.enter(Phase::kExperts);
  prepare_forward(pass);
  run({pass.kernels, pass.shard, pass.packed, share.own, pass.saved, pass.workspace, pass.clock},
      share.own_chunk);
  if (!share.replicas.empty()) {
    pass.clock.enter(Phase::kDispatch);
    messages.wait_for(0, (pass.shard.biases.any() ? 4 : 2) * std::ssize(share.replicas));
    pass.clock.enter(Phase::kExperts);
    const ExpertShard replicas = share.replica_shard(pass);
    run({pass.kernels, replicas, no_faces_, share.of_replicas, pass.saved, pass.workspace, pass.clock},
        share.replica_chunk);
  }
  pass.clock.enter(Phase::kCombine);
  messages.finish();
  if (!trip.one_way) dispatcher.send_all_back(trip);
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

std::span<float> RebalancedExperts::sum_of(const Branch& branch) {
  return {sums_.row(branch.sum), at(sums_.cols())};
}

/// Rows of the branches lie side by side from first_row on.
void RebalancedExperts::sum_branches(const ExpertPass& pass, const Share& share, Index first_row,
                                     std::span<const Branch> branches, ConstMatrixView d_rows) {
  const Index sources = share.placement.ranks();
  group_rows_.assign(branches.size() * at(sources), 0);
  for (auto& targets : targets_) targets.clear();
  for (std::size_t i = 0; i < branches.size(); ++i) {
    const auto& [expert, of_sources, sum] = branches[i];
    const auto parts = in_sums(sums_.row(sum), pass.shard).all();
    for (std::size_t part = 0; part < parts.size(); ++part) targets_[part].push_back(parts[part]);
    for (Index source = of_sources.lo; source < of_sources.hi; ++source)
      group_rows_[i * at(sources) + at(source)] = share.placement.counts().of(source, expert);
  }
  weight_gradients(pass, first_row, {group_rows_, sources}, d_rows,
                   {targets_[0], targets_[1], targets_[2], targets_[3]}, Write::kReplace);
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

void write(std::span<const float> sum, std::span<float> gradient, Write mode) {
  const ConstMatrixView from(sum.data(), 1, std::ssize(sum));
  const MatrixView to(gradient.data(), 1, std::ssize(gradient));
  if (mode == Write::kAdd)
    add(from, to);
  else
    copy(from, to);
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
      sums.push_back(sums_.row(branches.front().sum));
    }
    tree_sum_of(sums, of_sources, 0, share.placement.ranks(), sums_.cols());
    const auto added_up = in_sums(sums_.row(first), shard).all();
    const auto into = parts_of(gradients_of(shard), shard, i).all();
    for (std::size_t part = 0; part < into.size(); ++part)
      if (into[part].size() > 0) write(added_up[part].flat(), into[part].flat(), gradients);
  }
}

void RebalancedExperts::backward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip,
                                 Write gradients) {
  pass.clock.enter(Phase::kDispatch);
  dispatcher.await_all(trip);
  Share share(pass, trip.plan, dispatcher.ep().rank());
  const ExpertShard& shard = pass.shard;
  const bool trains = shard.trains_gate_up() || shard.trains_down();
  std::vector<Branch> of_replicas, of_own;
  if (trains) of_replicas = list_branches(share, true), of_own = list_branches(share, false);
  for (Branch& branch : of_replicas) branch.sum += std::ssize(of_own);
  sums_.reshape_uninitialised(std::ssize(of_own) + std::ssize(of_replicas), sum_size(shard));
  Messages messages(dispatcher.ep(), Channel::kReplicas);
  for (const Branch& branch : of_own)
    if (branch.sources.rank != share.rank)
      messages.receive(static_cast<int>(branch.sources.rank), sum_of(branch));
  const Meanwhile travelling(Interlude::calling<&Messages::progress>(messages));

  pass.clock.enter(Phase::kExperts);
  prepare_backward(pass);
  if (!share.replicas.empty()) {
    const ExpertShard replicas = share.replica_shard(pass);
    backward_chunk(
        {pass.kernels, replicas, no_faces_, share.of_replicas, pass.saved, pass.workspace, pass.clock},
        share.replica_chunk, trip.rows);
    sum_branches(pass, share, share.replica_chunk.rows.begin, of_replicas, trip.rows);
    for (const Branch& branch : of_replicas) {
      const std::span<const float> sum = sum_of(branch);
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
  dispatcher.send_all_back(trip);
}

/// Sources are taken from near to far in the tree, so that a replica computes at most log2(ep) branches, and
/// leaves as many and one to the owner; a single hot expert may have one of each rank instead.
double RebalancedExperts::sum_bytes(const ExpertShape& own, Index ranks) {
  const Index levels = std::bit_width(at(ranks - 1));
  const Index branches = std::max(own.experts * (1 + levels), ranks) + own.experts * levels;
  return array_bytes(branches * own.numbers());
}

}  // namespace moeloom
