#include "moeloom/measure/sweep/world.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {
namespace {

GmmRequest request_of(GmmPatch patch) {
  constexpr std::array requests = {GmmRequest::kNever, GmmRequest::kForce, GmmRequest::kAuto};
  return requests[static_cast<std::size_t>(patch)];
}

}  // namespace

EpWorld::EpWorld(const BenchEpOptions& options, const ModelConfig& config, const EnvironmentFlags& flags,
                 const std::vector<EpGroup>& groups)
    : options_(options), config_(config), flags_(flags) {
  const auto split = [this](Index ep) {
    if (!meshes_.contains(ep)) meshes_[ep] = std::make_unique<Mesh>(Communicator::world(), MeshShape{0, ep});
  };
  split(1);
  for (const EpGroup& group : groups)
    for (const EpPoint& point : group) split(point.ep);
}

PlannedPoint EpWorld::plan(const EpPoint& point) const {
  const Mesh& on = mesh(point.ep);
  EnvironmentFlags flags = flags_;
  flags.gmm = request_of(point.patch);
  KernelChoice choice;
  choice.dtype = point.dtype;
  const Index tokens = ceil_div(point.tokens, point.ranks);
  PlannedPoint planned{.point = point,
                       .mesh = &on,
                       .kernels = plan_kernels(choice, flags, config_, on.shape(),
                                               {.tokens = tokens, .recorded = std::nullopt}, on.world()),
                       .dispatcher = {}};
  planned.dispatcher =
      plan_dispatcher({.kind = point.dispatcher, .wire = {.pretended_nodes = flags_.pretended_nodes}},
                      config_, on, {tokens, predicted_seconds(planned.kernels)});
  // A fallback to fp32 would stand in the report beside the bf16 that was asked for. Where auto takes the
  // loop, it is fp32.
  if (point.dtype == DType::kBF16 && planned.kernels.dtype.type != DType::kBF16 && planned.kernels.gmm.apply)
    throw AgreedError("--dtype bf16: " + planned.kernels.dtype.reason + "; leave bf16 out of --dtype");
  return planned;
}

PlannedPoint EpWorld::reference(const EpPoint& point) const {
  PlannedPoint planned{.point = point, .mesh = &mesh(1), .kernels = {}, .dispatcher = {}};
  planned.point.ep = 1;
  return planned;
}

}  // namespace moeloom
