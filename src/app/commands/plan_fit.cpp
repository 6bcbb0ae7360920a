#include "commands/plan_fit.hpp"

#include "moeloom/base/text.hpp"

#include <algorithm>
#include <map>

namespace moeloom {
namespace {

Index nodes_of(const PlanRequest& request) {
  return ceil_div(request.ranks, request.ranks_per_node);
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
  Fitter(const PlanRequest& request, const std::vector<DispatcherKind>& ways)
      : asked_(request), ways_(ways) {}

  /// The fewest micro-batches with which such a layout fits.
  std::optional<FittingJob> on(Index nodes, Index ranks_per_node) {
    const Index sequences = asked_.tokens * asked_.ranks / asked_.sequence_length;  // of a step
    if (sequences % (nodes * ranks_per_node) != 0) return std::nullopt;
    PlanRequest job = asked_;
    job.ranks = nodes * ranks_per_node;
    job.ranks_per_node = ranks_per_node;
    // With --threads unset a rank takes over what its neighbours leave; more threads hold more, not less.
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
  std::optional<FittingJob> least(const PlanRequest& job) {
    std::optional<FittingJob> best;
    for (const Index ep : ep_sizes(job)) {
      const auto specs = specs_.try_emplace(ep, std::vector<ParameterSpec>()).first;
      if (specs->second.empty()) specs->second = specs_at(job, ep);
      for (const StepCase& step : steps_at(job, ep, ways_)) {
        const MemoryNeed memory = memory_of(job, step, specs->second, false);
        if (node_bytes(step, memory) > job.memory_per_node) continue;
        if (!best || memory.total() < best->memory.total()) best = FittingJob{job, step, memory};
      }
    }
    return best;
  }

  const PlanRequest& asked_;
  const std::vector<DispatcherKind>& ways_;
  std::map<Index, std::vector<ParameterSpec>> specs_;  // by ep
};

/// "dp = 2, ep = 32, shared"
std::string mesh_text(const StepCase& step) {
  return step.mesh.text() + (step.mesh.ep == 1 ? "" : ", " + std::string(name_of(step.way)));
}

/// "26 GiB a rank (dp = 2, ep = 32, shared), 208 GiB for the 8 ranks of a node"
std::string need_text(const StepCase& step, const MemoryNeed& memory) {
  const std::string rank = bytes_text(memory.total()) + " a rank (" + mesh_text(step) + ")";
  if (step.ranks_per_node == 1) return rank + ", alone on its node";
  return rank + ", " + bytes_text(node_bytes(step, memory)) + " for the " +
         std::to_string(step.ranks_per_node) + " ranks of a node";
}

}  // namespace

const PlanPoint& smallest_point(const std::vector<PlanPoint>& points) {
  return *std::ranges::min_element(points, {}, [](const PlanPoint& p) { return p.memory.total(); });
}

std::optional<FittingJob> cheapest_fit(const PlanRequest& request, const std::vector<DispatcherKind>& ways) {
  Fitter fitter(request, ways);
  const Index sequences = request.tokens * request.ranks / request.sequence_length;
  std::vector<Index> shares = divisors(std::min(request.ranks_per_node, request.ranks));
  std::ranges::reverse(shares);
  for (Index nodes = nodes_of(request); nodes <= sequences; ++nodes)
    for (const Index ranks_per_node : shares)
      if (auto fit = fitter.on(nodes, ranks_per_node)) return fit;
  return std::nullopt;
}

std::string changed_options(const PlanRequest& before, const PlanRequest& after) {
  std::string options;
  const auto add = [&](const char* name, Index PlanRequest::*field) {
    if (before.*field == after.*field) return;
    options += (options.empty() ? "--" : " --") + std::string(name) + " " + std::to_string(after.*field);
  };
  add("ranks", &PlanRequest::ranks);
  add("ranks-per-node", &PlanRequest::ranks_per_node);
  add("tokens-per-rank", &PlanRequest::tokens);
  add("accumulate", &PlanRequest::micro_batches);
  return options;
}

std::string memory_advice(const PlanRequest& request, const PlanPoint& smallest,
                          const std::optional<FittingJob>& fit) {
  const std::string needed = bytes_text(node_bytes(smallest.step, smallest.memory));
  const std::string nothing = "nothing fits: the smallest need is " +
                              need_text(smallest.step, smallest.memory) + ", which has " +
                              bytes_text(request.memory_per_node) + "\n";
  if (!fit)
    return nothing + "no other layout of these tokens fits, down to one rank a node with one sequence at a " +
           "time; as it is the job needs nodes of " + needed + "\n";
  const Index nodes = nodes_of(fit->request);
  const bool more = nodes > nodes_of(request);
  const std::string where =
      more ? ", on " + std::to_string(nodes) + " nodes instead of " + std::to_string(nodes_of(request)) : "";
  return nothing + "the cheapest change that fits, with the same tokens a step" + where + ": " +
         changed_options(request, fit->request) + "\n  " + need_text(fit->step, fit->memory) +
         (more ? "\nas it is the job needs nodes of " + needed : "") + "\n";
}

}  // namespace moeloom
