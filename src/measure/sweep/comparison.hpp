// A comparison measured: its points set up and checked one after the other, then timed in turn.
#pragma once

#include "measure/sweep/row.hpp"
#include "moe/dispatch/dispatcher.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/job/job.hpp"
#include "moeloom/kernels/registry.hpp"

#include <functional>
#include <map>
#include <memory>

namespace moeloom {

/// What a point runs with, and why: what a run that asks for the same decides.
struct PointSetup {
  KernelTable kernels;
  DispatcherSettings dispatcher;
  Exchange travel = {};       // of gradients and new weights in a training step
  DType dtype = DType::kF32;  // that products multiply
  bool gmm_applied = false;
  std::string gmm_reason;
  std::string dispatcher_reason;
};
/// Collective over the mesh's world. Throws AgreedError for a dispatcher or a dtype that cannot run here.
using SetUpPoint = std::function<PointSetup(const EpPoint& point, const Mesh& mesh)>;

/// The ranks of a sweep: one process group, and a mesh of it for every ep.
class SweepWorld {
 public:
  /// Splits the world for every ep of the groups, and for ep = 1. Collective. settings and config must
  /// outlive it.
  SweepWorld(const SweepSettings& settings, const ModelConfig& config, SetUpPoint set_up,
             const std::vector<EpGroup>& groups);

  const SweepSettings& settings() const { return settings_; }
  const ModelConfig& config() const { return config_; }
  const Mesh& mesh(Index ep) const { return *meshes_.at(ep); }
  const Communicator& world() const { return mesh(1).world(); }
  PointSetup set_up(const EpPoint& point) const { return set_up_(point, mesh(point.ep)); }

 private:
  const SweepSettings& settings_;
  const ModelConfig& config_;
  SetUpPoint set_up_;
  std::map<Index, std::unique_ptr<Mesh>> meshes_;
};

/// One row a point, in the group's order, the same on every rank; `blank` is what all of them share.
/// Collective over the world. Throws AgreedError with the arithmetic for a point that does not agree with ep
/// = 1: a wrong answer is not timed. A point that cannot run here is skipped, and its row says why.
std::vector<EpRow> measure(const SweepWorld& world, const EpGroup& group, const EpRow& blank);

}  // namespace moeloom
