// A routing file as a benchmark's routing: what a trained model did, as it lies.
#pragma once

#include "io/routing_file.hpp"
#include "moeloom/measure/synthetic_workload.hpp"

namespace moeloom {

/// Step i of a benchmark takes layer i mod L of the L chosen ones, and of that layer's tokens, all steps of
/// the file one after the other, the next that no step took: from the first again behind the last.
class RecordedWorkload {
 public:
  static constexpr std::string_view kPrefix = "trace:";

  /// name: "trace:FILE" for all sparse layers, "trace:FILE@LAYER" for the one of that number. Reads the whole
  /// file. Throws IoError as RoutingFile does; std::invalid_argument for a layer that the file has not.
  explicit RecordedWorkload(std::string name);

  const std::string& name() const { return name_; }
  const RoutingFile& file() const { return file_; }
  /// Why benchmarks of these sizes cannot have it; none: they can. Tokens may be any number.
  std::optional<std::string> why_not(const WorkloadShape& shape) const;
  /// topk_idx [range.count, top_k]. Throws ShapeError where why_not() says something.
  std::vector<std::int32_t> choose_experts(const WorkloadShape& shape, Index step, TokenRange range) const;
  /// Rows of each expert: a list for each chosen layer of each step, layers of a step beside each other.
  const std::vector<std::vector<Index>>& expert_rows() const { return expert_rows_; }

 private:
  std::string name_;
  RoutingFile file_;
  std::vector<Index> layers_;  // places in the file's heading
  std::vector<std::vector<Index>> expert_rows_;
  Index empty_slots_ = 0;  // that have no expert
};

}  // namespace moeloom
