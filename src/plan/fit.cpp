#include "moeloom/plan/fit.hpp"

#include <algorithm>
#include <map>

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

/// Fits jobs of one model; parameters depend on ep alone and are listed once.
class Fitter {
 public:
  Fitter(const Job& job, std::span<const DispatcherKind> kinds) : asked_(job), kinds_(kinds) {}

  /// The fewest micro-batches with which such a layout fits.
  std::optional<FittingJob> on(Index nodes, Index ranks_per_node) {
    const Index sequences = asked_.tokens * asked_.ranks / asked_.sequence_length;  // of a step
    if (sequences % (nodes * ranks_per_node) != 0) return std::nullopt;
    Job job = asked_;
    job.ranks = nodes * ranks_per_node;
    job.ranks_per_node = ranks_per_node;
    // Where threads are not said a rank takes over what its neighbours leave; more threads hold more, not
    // less.
    job.threads = asked_.threads * std::max<Index>(asked_.ranks_per_node / ranks_per_node, 1);
    job.tokens = sequences / job.ranks * asked_.sequence_length;
    const std::vector<Index> micro_batches = divisors(sequences / job.ranks);
    job.micro_batches = micro_batches.back();
    if (!least(job)) return std::nullopt;
    for (const Index count : micro_batches) {
      job.micro_batches = count;
      if (auto fit = least(job)) return fit;
    }
    return std::nullopt;
  }

 private:
  /// The mesh and way of a job that asks for least, if that fits.
  std::optional<FittingJob> least(const Job& job) {
    std::optional<FittingJob> best;
    for (const Index ep : ep_sizes(job)) {
      const auto specs = specs_.try_emplace(ep, std::vector<ParameterSpec>()).first;
      if (specs->second.empty()) specs->second = parameters_at(job, ep);
      StepCase step = step_at(job, ep);
      for (const DispatcherKind kind : kinds_at(step, kinds_)) {
        step.kind = kind;
        step.chunks = most_chunks(job, step);
        const MemoryNeed memory = step_memory(job.config, specs->second, step, false, job.dtype);
        if (node_memory_bytes(step, memory) > job.memory_per_node) continue;
        if (!best || memory.total() < best->memory.total()) best = FittingJob{job, step, memory};
      }
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
  std::map<Index, std::vector<ParameterSpec>> specs_;  // by ep
};

}  // namespace

const PredictedPoint& smallest_point(const std::vector<PredictedPoint>& points) {
  return *std::ranges::min_element(points, {}, [](const PredictedPoint& p) { return p.memory.total(); });
}

std::optional<FittingJob> cheapest_fit(const Job& job, std::span<const DispatcherKind> kinds) {
  Fitter fitter(job, kinds);
  const Index sequences = job.tokens * job.ranks / job.sequence_length;
  std::vector<Index> shares = divisors(std::min(job.ranks_per_node, job.ranks));
  std::ranges::reverse(shares);
  for (Index nodes = nodes_of(job); nodes <= sequences; ++nodes)
    for (const Index ranks_per_node : shares)
      if (auto fit = fitter.on(nodes, ranks_per_node)) return fit;
  return std::nullopt;
}

}  // namespace moeloom
