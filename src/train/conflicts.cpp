#include "train/conflicts.hpp"

#include "moeloom/base/violations.hpp"

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
  with(job.exchange.combine == CombineMode::kFast, "combine = fast",
       "nodes add up rows before they send them");
  with(job.exchange.wire == WireDType::kBf16, "wire dtype = bf16",
       "which rows are rounded depends on the mesh");
  with(job.keeping.shard_dense, "shard dense = yes", "the integers that are summed are whole on every rank");
  with(job.keeping.gradients != Storage::kFp32, "gradients = bf16", "integers are made of gradients in fp32");
  with(row_budget > 0, "row budget = " + std::to_string(row_budget),
       "a layer in slices divides the parts that are summed, and a memory ceiling sets such a budget");
}

}  // namespace

std::vector<std::string> conflicts(const Job& job, Index row_budget) {
  Violations violations;
  add_those_of_exact_sums(job, row_budget, violations);
  return violations.list();
}

}  // namespace moeloom
