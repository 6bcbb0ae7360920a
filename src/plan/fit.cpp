#include "plan/fit.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "savings.hpp"

namespace moeloom {
namespace {

std::vector<Index> divisors(Index n) {
  std::vector<Index> found;
  for (Index d = 1; d <= n; ++d)
    if (n % d == 0) found.push_back(d);
  return found;
}

/// Numbers of micro-batches that divide a rank's sequences, into whole leaves where sums are exact.
std::vector<Index> micro_batch_counts(const Job& job) {
  const Index sequences = job.batch.sequences / job.layout.mesh.world();
  std::vector<Index> counts = divisors(sequences);
  std::erase_if(counts,
                [&](Index count) { return sequences / count % std::max<Index>(job.batch.exact, 1) != 0; });
  return counts;
}

/// Fits jobs of one model; parameters depend on ep alone and are listed once.
class Fitter {
 public:
  Fitter(const PlannedJob& planned, std::span<const DispatcherKind> kinds) : asked_(planned), kinds_(kinds) {}

  /// The fewest micro-batches with which such a layout fits.
  std::optional<FittingJob> on(Index nodes, Index ranks_per_node, const Keeping& keeping) {
    const Layout& asked = asked_.job.layout;
    const Index ranks = nodes * ranks_per_node;
    if (asked_.job.batch.sequences % ranks != 0) return std::nullopt;
    PlannedJob laid = asked_;
    laid.job.keeping = keeping;
    laid.job.layout.mesh = {.dp = ranks};
    laid.job.layout.ranks_per_node = ranks_per_node;
    // Where threads are not said a rank takes over what its neighbours leave; more threads hold more, not
    // less.
    laid.job.layout.threads = asked.threads * std::max<Index>(asked.ranks_per_node / ranks_per_node, 1);
    const std::vector<Index> micro_batches = micro_batch_counts(laid.job);
    if (micro_batches.empty()) return std::nullopt;
    laid.job.batch.micro_batches = micro_batches.back();
    if (!least(laid)) return std::nullopt;
    for (const Index count : micro_batches) {
      laid.job.batch.micro_batches = count;
      if (auto fit = least(laid)) return fit;
    }
    return std::nullopt;
  }

  /// The fewest micro-batches, and with those the ep nearest to that one, with which a layout fits that
  /// brings its ranks.
  std::optional<FittingJob> nearest(PlannedJob planned, Index ep) {
    std::vector<Index> sizes = ep_sizes(planned);
    const auto distance = [ep](Index size) {
      return std::abs(std::log2(static_cast<double>(size) / static_cast<double>(ep)));
    };
    std::ranges::stable_sort(sizes, {}, distance);
    for (const Index count : micro_batch_counts(planned.job)) {
      if (count < asked_.job.batch.micro_batches) continue;
      planned.job.batch.micro_batches = count;
      for (const Index size : sizes)
        if (auto fit = least_at(planned, size)) return fit;
    }
    return std::nullopt;
  }

 private:
  /// The mesh and way of a job that asks for least, if that fits.
  std::optional<FittingJob> least(const PlannedJob& planned) {
    std::optional<FittingJob> best;
    for (const Index ep : ep_sizes(planned)) {
      auto fit = least_at(planned, ep);
      if (fit && (!best || fit->memory.total() < best->memory.total())) best = std::move(fit);
    }
    return best;
  }
  /// The way of one mesh.
  std::optional<FittingJob> least_at(const PlannedJob& planned, Index ep) {
    const Keeping& keeping = planned.job.keeping;
    const auto specs =
        specs_.try_emplace({ep, keeping.masters, keeping.gradients}, std::vector<ParameterSpec>()).first;
    if (specs->second.empty()) specs->second = parameters_at(planned, ep);
    std::optional<FittingJob> best;
    Job job = job_at(planned, ep);
    for (const DispatcherKind kind : kinds_at(job, kinds_)) {
      job.exchange.dispatcher = kind;
      job.exchange.chunks = most_chunks(planned, job);
      const MemoryNeed memory = unpacked_memory(planned, specs->second, job);
      if (node_memory_bytes(job, memory) > planned.memory_per_node) continue;
      if (!best || memory.total() < best->memory.total()) best = FittingJob{job, memory};
    }
    return best;
  }

  /// Chunks that the rows might travel in: a job must fit whatever is decided of it.
  static Index most_chunks(const PlannedJob& planned, const Job& job) {
    const bool may = job.layout.ep_on_node() < job.layout.mesh.ep && planned.config.has_experts();
    return may ? planned.config.num_experts / job.layout.mesh.ep : 0;
  }

  const PlannedJob& asked_;
  std::span<const DispatcherKind> kinds_;
  /// By ep, masters and gradients.
  std::map<std::tuple<Index, Storage, Storage>, std::vector<ParameterSpec>> specs_;
};

/// What a job is asked for, and every saving with it, in the order in which they are tried.
std::vector<Keeping> keepings_of(const PlannedJob& planned) {
  std::vector<Keeping> keepings = {planned.job.keeping};
  for (const std::vector<Saving>& savings : savings_of(planned)) {
    std::vector<Keeping> with_each;
    for (const Keeping& keeping : keepings) {
      with_each.push_back(keeping);
      for (const Saving& save : savings) save(with_each.emplace_back(keeping));
    }
    keepings = std::move(with_each);
  }
  return keepings;
}

/// shares: ranks a node to try, in order.
std::optional<FittingJob> on_fewest_nodes(const PlannedJob& planned, std::span<const DispatcherKind> kinds,
                                          const std::vector<Index>& shares) {
  Fitter fitter(planned, kinds);
  for (Index nodes = ceil_div(planned.ranks(), planned.job.layout.ranks_per_node);
       nodes <= planned.job.batch.sequences; ++nodes)
    for (const Keeping& saving : keepings_of(planned))
      for (const Index ranks_per_node : shares)
        if (auto fit = fitter.on(nodes, ranks_per_node, saving)) return fit;
  return std::nullopt;
}

}  // namespace

const PredictedPoint& smallest_point(const std::vector<PredictedPoint>& points) {
  return *std::ranges::min_element(points, {}, [](const PredictedPoint& p) { return p.memory.total(); });
}

std::optional<FittingJob> cheapest_fit(const PlannedJob& planned, std::span<const DispatcherKind> kinds) {
  std::vector<Index> shares = divisors(std::min(planned.job.layout.ranks_per_node, planned.ranks()));
  std::ranges::reverse(shares);
  return on_fewest_nodes(planned, kinds, shares);
}

std::optional<FittingJob> cheapest_fit_of_ranks(const PlannedJob& planned, double rank_bytes,
                                                std::span<const DispatcherKind> kinds) {
  const Index on_node = std::min(planned.job.layout.ranks_per_node, planned.ranks());
  PlannedJob bounded = planned;
  bounded.memory_per_node = rank_bytes * static_cast<double>(on_node);
  return on_fewest_nodes(bounded, kinds, {on_node});
}

std::optional<FittingJob> fit_on_hosts(const PlannedJob& planned, Index ep, std::span<const Index> slots,
                                       std::span<const DispatcherKind> kinds) {
  const Index sequences = planned.job.batch.sequences;
  Fitter fitter(planned, kinds);
  // No more ranks than sequences divide them.
  for (Index ranks = std::min(sequences, std::accumulate(slots.begin(), slots.end(), Index{0})); ranks > 0;
       --ranks) {
    if (sequences % ranks != 0) continue;
    PlannedJob laid = planned;
    laid.job.layout.mesh = {.dp = ranks};
    laid.job.layout.ranks_per_node = std::min(ranks, std::ranges::max(slots));
    if (auto fit = fitter.nearest(laid, ep)) return fit;
  }
  return std::nullopt;
}

}  // namespace moeloom
