// The ranks of a sweep: one process group, and a mesh of it for every ep.
#pragma once

#include <map>
#include <memory>

#include "moeloom/measure/sweep/points.hpp"
#include "cli/environment.hpp"
#include "run/dispatcher_plan.hpp"
#include "run/kernel_plan.hpp"

namespace moeloom {

/// A point with the kernels and the dispatcher that it runs with.
struct PlannedPoint {
  EpPoint point;
  const Mesh* mesh = nullptr;
  KernelPlan kernels;
  DispatcherPlan dispatcher;
};

class EpWorld {
 public:
  /// Splits the world for every ep of the groups, and for ep = 1. Collective. options and config must outlive
  /// it.
  EpWorld(const BenchEpOptions& options, const ModelConfig& config, const EnvironmentFlags& flags,
          const std::vector<EpGroup>& groups);

  const BenchEpOptions& options() const { return options_; }
  const ModelConfig& config() const { return config_; }
  const Mesh& mesh(Index ep) const { return *meshes_.at(ep); }
  const Communicator& world() const { return mesh(1).world(); }

  /// Collective. Throws AgreedError for a dispatcher or a dtype that cannot run here.
  PlannedPoint plan(const EpPoint& point) const;
  /// The path that every other is checked against: a loop over all experts on each rank, fp32, reference
  /// kernels.
  PlannedPoint reference(const EpPoint& point) const;

 private:
  const BenchEpOptions& options_;
  const ModelConfig& config_;
  const EnvironmentFlags flags_;
  std::map<Index, std::unique_ptr<Mesh>> meshes_;
};

}  // namespace moeloom
