#include "bench_ep_world.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

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
  flags.node_pool = false;
  KernelChoice choice;
  choice.dtype = point.dtype;
  const RunRequest request = run_request(choice, {.dispatcher = point.dispatcher}, flags);
  const StepCase work{.threads = threads(), .tokens = ceil_div(point.tokens, point.ranks)};
  DecidedRun run = decide_run(find_run_facts(config_, on, work, flags.pretended_nodes), request, choice,
                              flags, on.world());
  PlannedPoint planned{.point = point, .mesh = &on, .decision = std::move(run.decision), .dispatcher = {}};
  planned.dispatcher = open_dispatcher(planned.decision, request, on, config_.num_experts);
  // A fallback to fp32 would stand in the report beside the bf16 that was asked for. Where auto takes the
  // loop, it is fp32.
  const RunDecision& decision = planned.decision;
  if (point.dtype == DType::kBF16 && decision.dtype.type != DType::kBF16 && decision.gmm.apply)
    throw AgreedError("--dtype bf16: " + decision.dtype.reason + "; leave bf16 out of --dtype");
  return planned;
}

PlannedPoint EpWorld::reference(const EpPoint& point) const {
  PlannedPoint planned{.point = point, .mesh = &mesh(1), .decision = {}, .dispatcher = {}};
  planned.point.ep = 1;
  return planned;
}

}  // namespace moeloom
