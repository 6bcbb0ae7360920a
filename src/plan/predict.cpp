#include "moeloom/plan/predict.hpp"

#include "moeloom/model/freeze.hpp"
#include "moeloom/plan/decide/run_facts.hpp"

#include <algorithm>
#include <cmath>

#include "decide/decide_travel.hpp"

namespace moeloom {
namespace {

RunRequest request_of(const Job& job, DispatcherKind kind, bool grouped) {
  RunRequest request;
  request.gmm = grouped ? GmmRequest::kForce : GmmRequest::kNever;
  request.gmm_budget_bytes = job.gmm_budget_bytes;
  request.dtype = job.dtype;
  request.bf16 = Bf16Request::kEmulate;  // of another machine, perhaps, than this one
  request.dispatcher = kind;
  if (!job.overlap) ask_for_no_overlap(job.shard_dense, request);
  return request;
}

PredictedPoint point_of(const Job& job, const RunFacts& facts, DispatcherKind kind, bool grouped) {
  const RunDecision decision = decide(facts, request_of(job, kind, grouped));
  const double experts = expert_seconds(facts, decision.gmm);
  PredictedPoint point{.step = decision.step,
                       .grouped = grouped,
                       .packs = grouped && decision.gmm.packs,
                       .sparse = job.config.has_experts()};
  point.seconds = step_seconds(job.config, facts.parameters, point.step, facts.rates, experts);
  point.memory = decision.memory;
  point.message_bytes = step_bytes(job.config, facts.parameters, point.step);
  point.fits = node_memory_bytes(point.step, point.memory) <= job.memory_per_node;
  point.bottleneck = bottleneck(point.seconds);
  return point;
}

struct Part {
  const char* name;
  std::vector<Phase> phases;
};

const std::vector<Part>& parts() {
  static const std::vector<Part> all = {
      {"experts", {Phase::kExperts}},
      {"dense", {Phase::kEmbed, Phase::kAttention, Phase::kDense, Phase::kRouter, Phase::kOther}},
      {"loss", {Phase::kLoss}},
      {"exchange", {Phase::kPlan, Phase::kDispatch, Phase::kCombine}},
      {"reduce", {Phase::kReduce}},
      {"optimizer", {Phase::kOptimizer}}};
  return all;
}

}  // namespace

double PredictedPoint::tokens_per_second() const {
  return static_cast<double>(step.tokens * step.micro_batches * step.mesh.world()) / step_seconds();
}

std::vector<Index> ep_sizes(const Job& job) {
  const Index experts = job.config.has_experts() ? job.config.num_experts : 0;
  std::vector<Index> sizes;
  for (Index ep = 1; ep <= std::max<Index>(experts, 1); ++ep)
    if (mesh_violations({0, ep, {"dp", "ep"}}, job.ranks, experts).empty()) sizes.push_back(ep);
  return sizes;
}

StepCase step_at(const Job& job, Index ep) {
  StepCase step{.mesh = MeshShape{0, ep, {"dp", "ep"}}.completed(job.ranks),
                .ranks_per_node = std::min(job.ranks_per_node, job.ranks),
                .processors_per_node = job.processors_per_node,
                .threads = job.threads,
                .tcp = job.tcp,
                .tokens = job.tokens / job.micro_batches,
                .sequence_length = job.sequence_length,
                .micro_batches = job.micro_batches,
                .exact = job.exact,
                .recompute = job.recompute,
                .moments = job.moments,
                .masters = job.masters,
                .gradients = job.gradients,
                .optimizer = job.optimizer,
                .shard_dense = job.shard_dense,
                .offload = job.offload,
                .expert_rows = job.expert_rows};
  RunRequest request;
  if (!job.overlap) ask_for_no_overlap(job.shard_dense, request);
  const TravelDecision travel = decide_travel(request, step);
  step.overlap_reduce = travel.reduce.on;
  step.overlap_gather = travel.gather.on;
  return step;
}

std::vector<DispatcherKind> kinds_at(const StepCase& step, std::span<const DispatcherKind> kinds) {
  std::vector<DispatcherKind> able;
  for (const DispatcherKind kind : kinds) {
    const bool one_node = ep_on_node(step) == step.mesh.ep;
    const bool can = one_node || way_of(kind).crosses_nodes;
    if (step.mesh.ep == 1 ? kind == DispatcherKind::kAlltoall : can) able.push_back(kind);
  }
  return able;
}

std::vector<ParameterSpec> parameters_at(const Job& job, Index ep) {
  const ExpertRange experts = experts_of(std::max<Index>(job.config.num_experts, 1), ep, 0);
  return with_gradients(
      with_storage(with_frozen(parameter_specs(job.config, experts), job.frozen), job.masters),
      job.gradients);
}

RunFacts facts_at(const Job& job, const StepCase& step) {
  RunFacts facts = facts_of_job(job.config, step);
  facts.parameters = parameters_at(job, step.mesh.ep);
  return facts;
}

std::vector<PredictedPoint> predict_points(const Job& job, const MachineRates& machine,
                                           const PredictExperts& predict,
                                           std::span<const DispatcherKind> kinds) {
  std::vector<PredictedPoint> points;
  for (const Index ep : ep_sizes(job)) {
    RunFacts facts = facts_at(job, step_at(job, ep));
    facts.rates = machine;
    facts.rates_source = "measured rates";
    if (job.config.has_experts())
      facts.prediction = predict(
          gmm_facts(facts, request_of(job, DispatcherKind::kAlltoall, true), job.dtype), facts.step.mesh);
    for (const DispatcherKind kind : kinds_at(facts.step, kinds))
      for (const bool grouped : {false, true})
        if (!grouped || job.config.has_experts()) points.push_back(point_of(job, facts, kind, grouped));
  }
  std::ranges::stable_sort(points, [](const PredictedPoint& a, const PredictedPoint& b) {
    return a.fits != b.fits ? a.fits : a.step_seconds() < b.step_seconds();
  });
  return points;
}

double node_memory_bytes(const StepCase& step, const MemoryNeed& memory) {
  return memory.total() * static_cast<double>(step.ranks_per_node);
}

std::string bottleneck(const PhaseSeconds& seconds) {
  const auto of_part = [&](const Part& part) {
    double sum = 0;
    for (const Phase phase : part.phases) sum += seconds[static_cast<std::size_t>(phase)];
    return sum;
  };
  const Part& largest = *std::ranges::max_element(parts(), {}, of_part);
  return std::string(largest.name) + " " +
         std::to_string(std::lround(100 * of_part(largest) / total(seconds))) + " %";
}

std::string dispatcher_text(const PredictedPoint& point) {
  if (point.step.mesh.ep == 1) return "-";
  std::string text(name_of(point.step.kind));
  if (point.step.chunks > 0) text += " in " + std::to_string(point.step.chunks);
  return text;
}

std::string gmm_text(const PredictedPoint& point) {
  return !point.grouped ? "loop" : point.packs ? "gmm, packed" : "gmm";
}

Index busy_node_ranks(const Job& job) {
  const Index on_node = std::min(job.ranks_per_node, job.ranks);
  return std::clamp<Index>(job.processors_per_node / std::max<Index>(job.threads, 1), 1, on_node);
}

}  // namespace moeloom
