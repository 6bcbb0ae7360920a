#include "measure/workload.hpp"

#include <stdexcept>

namespace moeloom {

std::string_view name_of(const Workload& workload) {
  return workload.recorded() ? std::string_view(workload.recorded()->name()) : name_of(workload.made_up());
}

Workload workload_named(std::string_view name) {
  if (name.starts_with(RecordedWorkload::kPrefix)) return Workload(RecordedWorkload(std::string(name)));
  try {
    return synthetic_workload_named(name);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string(error.what()) + ", trace:FILE@LAYER");
  }
}

std::optional<std::string> why_not(const Workload& workload, const WorkloadShape& shape) {
  return workload.recorded() ? workload.recorded()->why_not(shape) : why_not(workload.made_up(), shape);
}

TokenRange tokens_of_rank(const Workload& workload, Index tokens, Index ranks, Index rank) {
  const auto alike = workload.recorded() ? SyntheticWorkload::kBalanced : workload.made_up();
  return tokens_of_rank(alike, tokens, ranks, rank);
}

std::vector<std::int32_t> choose_experts(const Workload& workload, const WorkloadShape& shape,
                                         std::uint64_t seed, Index step, TokenRange range) {
  return workload.recorded() ? workload.recorded()->choose_experts(shape, step, range)
                             : choose_experts(workload.made_up(), shape, seed, step, range);
}

std::vector<Index> rows_per_expert(const Workload& workload, const WorkloadShape& shape, std::uint64_t seed,
                                   Index step) {
  std::vector<Index> rows(at(shape.experts));
  for (const std::int32_t expert : choose_experts(workload, shape, seed, step, {0, shape.tokens}))
    ++rows[at(expert)];
  return rows;
}

}  // namespace moeloom
