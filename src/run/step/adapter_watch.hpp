// Whether an adapter learns: a factor that no gradient ever came back to is a mistake that no loss shows.
#pragma once

#include "train/trainer.hpp"

#include "open/opened_run.hpp"

namespace moeloom {

class AdapterWatch {
 public:
  /// All until it has gone.
  AdapterWatch(const OpenedRun& run, const ParameterStore& store, ShardedOptimizer& optimizer)
      : run_(run), store_(store), optimizer_(optimizer) {}

  /// After each step: counts what an adapter's experts got. After the tenth that was not skipped it warns of
  /// experts that learnt nothing yet, and throws AgreedError where no expert did, or for another factor
  /// without a gradient. Collective.
  void step(const StepReport& report);

 private:
  void judge() const;

  const OpenedRun& run_;
  const ParameterStore& store_;
  ShardedOptimizer& optimizer_;
  Index steps_ = 0;
  std::vector<std::vector<Index>> steps_with_rows_;  // [layer][E]
};

}  // namespace moeloom
