#include "moeloom/plan/fit.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace moeloom {
namespace {

Index nodes_of(const Job& job) {
  return ceil_div(job.ranks, job.ranks_per_node);
}

std::vector<Index> divisors(Index n) {
  std::vector<Index> found;
  for (Index d = 1; d <= n; ++d)
    if (n % d == 0) found.push_back(d);
  return found;
}

/// Numbers of micro-batches that divide a rank's sequences, into whole leaves where sums are exact.
std::vector<Index> micro_batch_counts(const Job& job) {
  const Index sequences = job.tokens / job.sequence_length;
  std::vector<Index> counts = divisors(sequences);
  std::erase_if(counts, [&](Index count) { return sequences / count % std::max<Index>(job.exact, 1) != 0; });
  return counts;
}

struct Saving {
  Storage masters, gradients;
  MomentFormat moments;
  Recompute recompute;
  bool shard_dense;
  bool offload;
};

/// Fits jobs of one model; parameters depend on ep alone and are listed once.
class Fitter {
 public:
  Fitter(const Job& job, std::span<const DispatcherKind> kinds) : asked_(job), kinds_(kinds) {}

  /// The fewest micro-batches with which such a layout fits.
  std::optional<FittingJob> on(Index nodes, Index ranks_per_node, const Saving& saving) {
    const Index sequences = asked_.tokens * asked_.ranks / asked_.sequence_length;  // of a step
    if (sequences % (nodes * ranks_per_node) != 0) return std::nullopt;
    Job job = asked_;
    job.ranks = nodes * ranks_per_node;
    job.recompute = saving.recompute;
    job.moments = saving.moments;
    job.masters = saving.masters;
    job.gradients = saving.gradients;
    job.shard_dense = saving.shard_dense;
    job.offload = saving.offload;
    job.ranks_per_node = ranks_per_node;
    // Where threads are not said a rank takes over what its neighbours leave; more threads hold more, not
    // less.
    job.threads = asked_.threads * std::max<Index>(asked_.ranks_per_node / ranks_per_node, 1);
    job.tokens = sequences / job.ranks * asked_.sequence_length;
    const std::vector<Index> micro_batches = micro_batch_counts(job);
    if (micro_batches.empty()) return std::nullopt;
    job.micro_batches = micro_batches.back();
    if (!least(job)) return std::nullopt;
    for (const Index count : micro_batches) {
      job.micro_batches = count;
      if (auto fit = least(job)) return fit;
    }
    return std::nullopt;
  }

  /// The fewest micro-batches, and with those the ep nearest to that one, with which a layout fits that
  /// brings its ranks.
  std::optional<FittingJob> nearest(Job job, Index ep) {
    std::vector<Index> sizes = ep_sizes(job);
    const auto distance = [ep](Index size) {
      return std::abs(std::log2(static_cast<double>(size) / static_cast<double>(ep)));
    };
    std::ranges::stable_sort(sizes, {}, distance);
    for (const Index count : micro_batch_counts(job)) {
      if (count < asked_.micro_batches) continue;
      job.micro_batches = count;
      for (const Index size : sizes)
        if (auto fit = least_at(job, size)) return fit;
    }
    return std::nullopt;
  }

 private:
  /// The mesh and way of a job that asks for least, if that fits.
  std::optional<FittingJob> least(const Job& job) {
    std::optional<FittingJob> best;
    for (const Index ep : ep_sizes(job)) {
      auto fit = least_at(job, ep);
      if (fit && (!best || fit->memory.total() < best->memory.total())) best = std::move(fit);
    }
    return best;
  }
  /// The way of one mesh.
  std::optional<FittingJob> least_at(const Job& job, Index ep) {
    const auto specs =
        specs_.try_emplace({ep, job.masters, job.gradients}, std::vector<ParameterSpec>()).first;
    if (specs->second.empty()) specs->second = parameters_at(job, ep);
    std::optional<FittingJob> best;
    StepCase step = step_at(job, ep);
    for (const DispatcherKind kind : kinds_at(step, kinds_)) {
      step.kind = kind;
      step.chunks = most_chunks(job, step);
      const MemoryNeed memory = step_memory(job.config, specs->second, step, false, job.dtype);
      if (node_memory_bytes(step, memory) > job.memory_per_node) continue;
      if (!best || memory.total() < best->memory.total()) best = FittingJob{job, step, memory};
    }
    return best;
  }

  /// Chunks that the rows might travel in: a job must fit whatever is decided of it.
  static Index most_chunks(const Job& job, const StepCase& step) {
    const bool may = way_of(step.kind).in_chunks && ep_on_node(step) < step.mesh.ep;
    return may && job.config.has_experts() ? job.config.num_experts / step.mesh.ep : 0;
  }

  const Job& asked_;
  std::span<const DispatcherKind> kinds_;
  /// By ep, masters and gradients.
  std::map<std::tuple<Index, Storage, Storage>, std::vector<ParameterSpec>> specs_;
};

/// What a job is asked for and what saves more, in order: dense parameters are sharded before time is spent,
/// time before numbers change, and of numbers the moments before gradients and these before the weights. The
/// time of a disk is not known, so it comes last.
std::vector<Saving> savings_beyond(const Job& job) {
  std::vector<Saving> savings;
  std::vector<Storage> storages = {job.masters};
  if (job.masters != Storage::kBf16) storages.push_back(Storage::kBf16);
  std::vector<bool> shards = {job.shard_dense};
  if (!job.shard_dense && job.exact == 0) shards.push_back(true);
  std::vector<Storage> gradients = {job.gradients};
  if (job.gradients == Storage::kFp32 && job.exact == 0 && job.config.has_experts())
    gradients.push_back(Storage::kBf16);
  std::vector<bool> disks = {job.offload};
  if (!job.offload && ParameterStore::disk_bytes(parameters_at(job, 1)) > 0) disks.push_back(true);
  for (const bool offload : disks)
    for (const Storage masters : storages)
      for (const Storage gradient : gradients)
        for (const MomentFormat moments : kMomentFormats)
          for (const Recompute recompute : kRecomputes)
            for (const bool shard_dense : shards)
              if (moments >= job.moments && recompute >= job.recompute)
                savings.push_back({masters, gradient, moments, recompute, shard_dense, offload});
  return savings;
}

/// shares: ranks a node to try, in order.
std::optional<FittingJob> on_fewest_nodes(const Job& job, std::span<const DispatcherKind> kinds,
                                          const std::vector<Index>& shares) {
  Fitter fitter(job, kinds);
  const Index sequences = job.tokens * job.ranks / job.sequence_length;
  for (Index nodes = nodes_of(job); nodes <= sequences; ++nodes)
    for (const Saving& saving : savings_beyond(job))
      for (const Index ranks_per_node : shares)
        if (auto fit = fitter.on(nodes, ranks_per_node, saving)) return fit;
  return std::nullopt;
}

}  // namespace

const PredictedPoint& smallest_point(const std::vector<PredictedPoint>& points) {
  return *std::ranges::min_element(points, {}, [](const PredictedPoint& p) { return p.memory.total(); });
}

std::optional<FittingJob> cheapest_fit(const Job& job, std::span<const DispatcherKind> kinds) {
  std::vector<Index> shares = divisors(std::min(job.ranks_per_node, job.ranks));
  std::ranges::reverse(shares);
  return on_fewest_nodes(job, kinds, shares);
}

std::optional<FittingJob> cheapest_fit_of_ranks(const Job& job, double rank_bytes,
                                                std::span<const DispatcherKind> kinds) {
  const Index on_node = std::min(job.ranks_per_node, job.ranks);
  Job bounded = job;
  bounded.memory_per_node = rank_bytes * static_cast<double>(on_node);
  return on_fewest_nodes(bounded, kinds, {on_node});
}

std::optional<FittingJob> fit_on_hosts(const Job& job, Index ep, std::span<const Index> slots,
                                       std::span<const DispatcherKind> kinds) {
  const Index sequences = job.tokens * job.ranks / job.sequence_length;  // of a step
  Fitter fitter(job, kinds);
  for (Index ranks = std::accumulate(slots.begin(), slots.end(), Index{0}); ranks > 0; --ranks) {
    if (sequences % ranks != 0) continue;
    Job laid = job;
    laid.ranks = ranks;
    laid.ranks_per_node = std::min(ranks, std::ranges::max(slots));
    laid.tokens = sequences / ranks * job.sequence_length;
    if (auto fit = fitter.nearest(laid, ep)) return fit;
  }
  return std::nullopt;
}

}  // namespace moeloom
