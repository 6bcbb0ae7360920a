#include "moeloom/train/conflicts.hpp"

#include "moeloom/base/violations.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// Of two that are both asked for.
void refuse(bool both, const std::string& one, const std::string& other, const std::string& why,
            Violations& violations) {
  violations.unless(!both, one + " cannot be had with " + other + ": " + why + "; remove one");
}

/// Sums of integers are the same on every mesh only where nothing is added up or rounded before them.
void add_those_of_exact_sums(const Job& job, Index row_budget, Violations& violations) {
  if (job.batch.exact == 0) return;
  const auto with = [&](bool asked, const std::string& what, const std::string& why) {
    refuse(asked, "exact sums = " + std::to_string(job.batch.exact), what, why, violations);
  };
  with(job.exchange.node_pool, "node pool = yes", "ranks write gradients into memory of other ranks");
  with(job.exchange.rebalance, "rebalance = yes",
       "the gradients of replicas are branches of the tree of ranks");
  with(job.exchange.combine == CombineMode::kFast, "combine = fast",
       "nodes add up rows before they send them");
  with(job.exchange.wire == WireDType::kBf16, "wire dtype = bf16",
       "which rows are rounded depends on the mesh");
  with(job.keeping.shard_dense, "shard dense = yes", "the integers that are summed are whole on every rank");
  with(job.keeping.gradients != Storage::kFp32, "gradients = bf16", "integers are made of gradients in fp32");
  with(row_budget > 0, "row budget = " + std::to_string(row_budget),
       "a layer in slices divides the parts that are summed, and a memory ceiling sets such a budget");
}

/// Other ranks read experts' weights and write their gradients in fp32, and multiply without their adapters.
void add_those_of_experts(const Job& job, const std::vector<ParameterSpec>& parameters,
                          Violations& violations) {
  const auto any_expert = [&](auto has) {
    return std::ranges::any_of(parameters, [&](const ParameterSpec& spec) {
      return spec.placement == Placement::kExperts && has(spec);
    });
  };
  const auto by_others = [&](bool found, bool asked, const std::string& what, const std::string& other,
                             const std::string& why) {
    refuse(found && asked, what, other, "other ranks would " + why, violations);
  };
  const bool pool = job.exchange.node_pool, rebalance = job.exchange.rebalance;
  by_others(any_expert([](const auto& spec) { return spec.adapter || spec.stored != Storage::kFp32; }),
            rebalance, "experts that have adapters or are kept in bf16 or F16", "rebalance = on",
            "run them as fp32 weights without adapters");
  const bool half_gradients = any_expert([](const auto& spec) { return spec.gradient != Storage::kFp32; });
  const std::string write_floats = "write gradients of experts as fp32";
  by_others(half_gradients, pool, "gradients = bf16", "node pool = on", write_floats);
  by_others(half_gradients, rebalance, "gradients = bf16", "rebalance = on", write_floats);
  by_others(any_expert([](const auto& spec) { return spec.adapter && spec.adapter->dropout > 0; }), pool,
            "experts whose adapters drop inputs", "node pool = on", "have no keys of the rows");
  by_others(job.keeping.offloads(), pool, "experts that lie on a disk", "node pool = on",
            "look for them in the node's memory");
}

}  // namespace

std::vector<std::string> conflicts(const Job& job, const std::vector<ParameterSpec>& parameters,
                                   Index row_budget) {
  Violations violations;
  add_those_of_exact_sums(job, row_budget, violations);
  add_those_of_experts(job, parameters, violations);
  return violations.list();
}

}  // namespace moeloom
