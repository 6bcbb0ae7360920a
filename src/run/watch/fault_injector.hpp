// Makes the faults of this rank happen, each once in a run.
#pragma once

#include "model/parts/parameters.hpp"

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include "fields/fault.hpp"

namespace moeloom {

/// Also if the run is started again: `record` in the run's folder keeps what has struck.
class FaultInjector : public FileObserver {
 public:
  /// `store` must outlive it, and it what is written: from now on it sees every file of this process.
  FaultInjector(std::vector<Fault> faults, std::filesystem::path record, ParameterStore& store);
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;
  ~FaultInjector() override;

  /// This rank has just come to `position`.
  void meet(const Position& position, Index next_step);
  /// The gradients of a micro-batch of `step` are there. What is not a number stays so where the step is run
  /// again to see where it began.
  void meet_gradients(Index step);
  FileAnswer before(FileStage stage, const std::filesystem::path& path, Index bytes) override;

 private:
  struct Armed {
    Fault fault;
    bool done = false;      // in this process or an earlier one
    bool poisoned = false;  // by this process
  };

  /// Once -> whether this is the time.
  bool begins(Armed& armed);
  void strike(const Fault& fault);

  std::vector<Armed> faults_;
  const std::filesystem::path record_;
  ParameterStore& store_;
  std::mutex mutex_;  // of `done`, which the thread of a background save asks too
  std::atomic<int> slow_moves_{0};
  std::atomic<bool> shorten_{false}, refuse_{false};  // the next write
};

/// The first parameter of that phase in that layer (-1: any) that is trained; the first of all for a phase
/// that has none.
const Parameter& parameter_of_phase(const ParameterStore& store, std::string_view phase, Index layer);

}  // namespace moeloom
