#include "plan/memory_changes.hpp"

#include <algorithm>

#include "savings.hpp"

namespace moeloom {
namespace {

std::vector<Job> candidates(const PlannedJob& planned) {
  const Job& job = planned.job;
  std::vector<Job> found;
  const auto add = [&](auto change) { change(found.emplace_back(job)); };
  if (job.sequences() % (2 * std::max<Index>(job.batch.exact, 1)) == 0)
    add([](Job& other) { other.batch.micro_batches *= 2; });
  for (const Index ep : ep_sizes(planned))
    if (ep > job.layout.mesh.ep) {
      add([&](Job& other) { other.layout = job_at(planned, ep).layout; });
      break;
    }
  for (const std::vector<Saving>& savings : savings_of(planned))
    for (const Saving& save : savings) add([&](Job& other) { save(other.keeping); });
  return found;
}

/// The way of a mesh of one rank may not be that of another.
bool can_run(const Job& job) {
  const std::array way = {job.exchange.dispatcher};
  return !kinds_at(job, way).empty();
}

}  // namespace

std::vector<MemoryChange> memory_changes(const PlannedJob& planned, const MachineRates& rates) {
  struct Cost {
    double bytes, seconds;
  };
  const auto cost_of = [&](const Job& each) {
    PlannedJob changed = planned;
    changed.job = each;
    const std::vector<ParameterSpec> specs = parameters_at(changed, each.layout.mesh.ep);
    RunFacts facts;
    facts.model = planned.config;
    facts.job = each;
    facts.rates = rates;
    return Cost{unpacked_memory(planned, specs, each).total(),
                total(step_seconds(planned.config, specs, each, rates, expert_seconds(facts, {})))};
  };
  const Cost now = cost_of(planned.job);
  std::vector<MemoryChange> changes;
  for (const Job& each : candidates(planned)) {
    if (!can_run(each)) continue;
    const Cost changed = cost_of(each);
    if (changed.bytes < now.bytes)
      changes.push_back({each, changed.bytes - now.bytes, changed.seconds / now.seconds});
  }
  std::ranges::stable_sort(changes, {}, &MemoryChange::time);
  return changes;
}

}  // namespace moeloom
