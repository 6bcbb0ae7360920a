// What single settings of a job change of a rank's memory, and at what price.
#pragma once

#include "plan/predict.hpp"

namespace moeloom {

/// The job with one setting changed, and the same tokens a step.
struct MemoryChange {
  Job job;
  double bytes = 0;  // of a rank with even rows, beside the job as it is; less than 0
  double time = 0;   // of a step, over that of the job as it is
};

/// Of a job as it was settled: twice as many micro-batches, an ep of the next size, moments in fewer
/// bytes, gradients of experts or weights in bf16, more to recompute; what saves nothing or cannot be is left
/// out. The least time first. Pure.
std::vector<MemoryChange> memory_changes(const PlannedJob& planned, const MachineRates& rates);

}  // namespace moeloom
