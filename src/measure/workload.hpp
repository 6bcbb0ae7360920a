// The routing that a benchmark measures with: a made-up one, or a recorded one.
#pragma once

#include "measure/recorded_workload.hpp"

#include <memory>

namespace moeloom {

/// A value: copies share the file of a recorded one.
class Workload {
 public:
  using enum SyntheticWorkload;

  Workload(SyntheticWorkload made_up = SyntheticWorkload::kBalanced) : made_up_(made_up) {}
  explicit Workload(RecordedWorkload recorded)
      : recorded_(std::make_shared<const RecordedWorkload>(std::move(recorded))) {}

  /// Null for a made-up one.
  const RecordedWorkload* recorded() const { return recorded_.get(); }
  /// Which, where it is not recorded.
  SyntheticWorkload made_up() const { return made_up_; }
  /// Two that read one file apart are two.
  bool operator==(const Workload&) const = default;

 private:
  SyntheticWorkload made_up_ = SyntheticWorkload::kBalanced;
  std::shared_ptr<const RecordedWorkload> recorded_;
};

/// As it is written: "balanced", "hot-rank", ..., "trace:FILE@LAYER". Lives as long as any copy of it.
std::string_view name_of(const Workload& workload);
/// Throws std::invalid_argument with the known names; as RecordedWorkload for a trace.
Workload workload_named(std::string_view name);

/// Why the workload cannot be made with these sizes, with the arithmetic; none: it can.
std::optional<std::string> why_not(const Workload& workload, const WorkloadShape& shape);

/// The tokens that lie on a rank: all of them are on some rank, in order.
TokenRange tokens_of_rank(const Workload& workload, Index tokens, Index ranks, Index rank);

/// topk_idx [range.count, top_k], different experts for each token; a recorded one has no seed. A function of
/// its arguments.
std::vector<std::int32_t> choose_experts(const Workload& workload, const WorkloadShape& shape,
                                         std::uint64_t seed, Index step, TokenRange range);

/// Rows of each expert in a step.
std::vector<Index> rows_per_expert(const Workload& workload, const WorkloadShape& shape, std::uint64_t seed,
                                   Index step);

}  // namespace moeloom
