#include "moeloom/plan/memory_changes.hpp"

#include <algorithm>

namespace moeloom {
namespace {

std::vector<StepCase> candidates(const Job& job, const StepCase& step) {
  std::vector<StepCase> found;
  const auto add = [&](auto change) { change(found.emplace_back(step)); };
  const Index sequences = step.tokens / step.sequence_length;
  const Index leaf = std::max<Index>(step.exact, 1);
  if (sequences % (2 * leaf) == 0)
    add([](StepCase& twice) {
      twice.tokens /= 2;
      twice.micro_batches *= 2;
    });
  for (const Index ep : ep_sizes(job))
    if (ep > step.mesh.ep) {
      add([&](StepCase& wider) { wider.mesh = step_at(job, ep).mesh; });
      break;
    }
  for (const MomentFormat moments : kMomentFormats)
    if (moments > step.moments) add([&](StepCase& smaller) { smaller.moments = moments; });
  if (step.exact == 0) add([](StepCase& rounded) { rounded.gradients = Storage::kBf16; });
  add([](StepCase& rounded) { rounded.masters = Storage::kBf16; });
  if (!step.shard_dense && step.exact == 0 && step.mesh.world() > 1)
    add([](StepCase& sharded) { sharded.shard_dense = true; });
  if (!step.offload) add([](StepCase& on_disk) { on_disk.offload = true; });
  for (const Recompute recompute : kRecomputes)
    if (recompute > step.recompute) add([&](StepCase& again) { again.recompute = recompute; });
  return found;
}

/// The way of a mesh of one rank may not be that of another.
bool can_run(const StepCase& step) {
  const std::array way = {step.kind};
  return !kinds_at(step, way).empty();
}

}  // namespace

std::vector<MemoryChange> memory_changes(const Job& job, const StepCase& step, const MachineRates& rates) {
  struct Cost {
    double bytes, seconds;
  };
  const auto cost_of = [&](const StepCase& each) {
    Job changed = job;
    changed.masters = each.masters;
    changed.gradients = each.gradients;
    const std::vector<ParameterSpec> specs = parameters_at(changed, each.mesh.ep);
    RunFacts facts;
    facts.model = job.config;
    facts.step = each;
    facts.rates = rates;
    return Cost{step_memory(job.config, specs, each, false, job.dtype).total(),
                total(step_seconds(job.config, specs, each, rates, expert_seconds(facts, {})))};
  };
  const Cost now = cost_of(step);
  std::vector<MemoryChange> changes;
  for (const StepCase& each : candidates(job, step)) {
    if (!can_run(each)) continue;
    const Cost changed = cost_of(each);
    if (changed.bytes < now.bytes)
      changes.push_back({each, changed.bytes - now.bytes, changed.seconds / now.seconds});
  }
  std::ranges::stable_sort(changes, {}, &MemoryChange::time);
  return changes;
}

}  // namespace moeloom
