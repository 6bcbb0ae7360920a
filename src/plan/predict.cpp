#include "plan/predict.hpp"

#include "plan/decide/run_facts.hpp"
#include "train/training_state.hpp"

#include <algorithm>
#include <cmath>

#include "decide/decide_travel.hpp"

namespace moeloom {
namespace {

/// By one dispatcher, the experts as asked.
RunRequest request_by(const PlannedJob& planned, DispatcherKind kind, bool grouped) {
  RunRequest request = request_of(planned);
  request.gmm = grouped ? GmmRequest::kForce : GmmRequest::kNever;
  request.exchange.dispatcher = kind;
  return request;
}

PredictedPoint point_of(const PlannedJob& planned, const RunFacts& facts, DispatcherKind kind, bool grouped) {
  const RunDecision decision = decide(facts, request_by(planned, kind, grouped));
  const double experts = expert_seconds(facts, decision.gmm);
  PredictedPoint point{.job = decision.job,
                       .grouped = grouped,
                       .packs = grouped && decision.gmm.packs,
                       .sparse = planned.config.has_experts()};
  point.seconds = step_seconds(planned.config, facts.parameters, point.job, facts.rates, experts);
  point.memory = decision.memory;
  point.message_bytes = step_bytes(planned.config, facts.parameters, point.job);
  point.fits = node_memory_bytes(point.job, point.memory) <= planned.memory_per_node;
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
      {"reduce", {Phase::kReduce, Phase::kReport}},
      {"optimizer", {Phase::kOptimizer}}};
  return all;
}

}  // namespace

double PredictedPoint::tokens_per_second() const {
  return static_cast<double>(job.tokens() * job.batch.micro_batches * job.layout.mesh.world()) /
         step_seconds();
}

std::vector<Index> ep_sizes(const PlannedJob& planned) {
  const Index experts = planned.config.has_experts() ? planned.config.num_experts : 0;
  std::vector<Index> sizes;
  for (Index ep = 1; ep <= std::max<Index>(experts, 1); ++ep)
    if (planned.ranks() % ep == 0 && mesh_violations({0, ep, {"dp", "ep"}}, planned.ranks(), experts).empty())
      sizes.push_back(ep);
  return sizes;
}

Job job_at(const PlannedJob& planned, Index ep) {
  Job job = planned.job;
  job.layout.mesh = MeshShape{.dp = 0, .ep = ep}.completed(planned.ranks());
  job.layout.ranks_per_node = std::min(job.layout.ranks_per_node, planned.ranks());
  job.layout.ep_per_node = 0;  // was that of another row
  const TravelDecision travel = decide_travel(request_of(planned).exchange, job);
  job.exchange.overlap_reduce = travel.overlap_reduce;
  job.exchange.overlap_gather = travel.overlap_gather;
  return job;
}

std::vector<DispatcherKind> kinds_at(const Job& job, std::span<const DispatcherKind> kinds) {
  std::vector<DispatcherKind> able;
  for (const DispatcherKind kind : kinds) {
    const bool one_node = job.layout.ep_on_node() == job.layout.mesh.ep;
    const bool can = one_node || way_of(kind).crosses_nodes;
    if (job.layout.mesh.ep == 1 ? kind == DispatcherKind::kAlltoall : can) able.push_back(kind);
  }
  return able;
}

std::vector<ParameterSpec> parameters_at(const PlannedJob& planned, Index ep) {
  const ExpertRange experts = experts_of(std::max<Index>(planned.config.num_experts, 1), ep, 0);
  return kept_specs(planned.config, experts, planned.frozen, planned.job.keeping);
}

RunRequest request_of(const PlannedJob& planned) {
  RunRequest request;
  request.gmm_budget_bytes = planned.gmm_budget_bytes;
  request.dtype = planned.dtype;
  request.bf16 = Bf16Request::kEmulate;  // of another machine, perhaps, than this one
  if (planned.overlap) return request;
  request.exchange = {.chunks = 0, .overlap_reduce = false, .overlap_gather = false};
  if (planned.job.keeping.shard_dense) request.exchange.overlap_reduce.reset();  // cannot leave it out
  return request;
}

RunFacts facts_at(const PlannedJob& planned, const Job& job) {
  RunFacts facts = facts_of_job(planned.config, job);
  facts.parameters = parameters_at(planned, job.layout.mesh.ep);
  return facts;
}

std::vector<PredictedPoint> predict_points(const PlannedJob& planned, const MachineRates& machine,
                                           const PredictExperts& predict,
                                           std::span<const DispatcherKind> kinds) {
  std::vector<PredictedPoint> points;
  for (const Index ep : ep_sizes(planned)) {
    RunFacts facts = facts_at(planned, job_at(planned, ep));
    facts.rates = machine;
    facts.rates_source = "measured rates";
    if (planned.config.has_experts())
      facts.prediction =
          predict(gmm_facts(facts, request_by(planned, DispatcherKind::kAlltoall, true), planned.dtype),
                  facts.job.layout.mesh);
    for (const DispatcherKind kind : kinds_at(facts.job, kinds))
      for (const bool grouped : {false, true})
        if (!grouped || planned.config.has_experts())
          points.push_back(point_of(planned, facts, kind, grouped));
  }
  std::ranges::stable_sort(points, [](const PredictedPoint& a, const PredictedPoint& b) {
    return a.fits != b.fits ? a.fits : a.step_seconds() < b.step_seconds();
  });
  return points;
}

MemoryNeed unpacked_memory(const PlannedJob& planned, const std::vector<ParameterSpec>& specs,
                           const Job& job) {
  MemoryNeed need = step_memory(planned.config, specs, job, false, planned.dtype);
  if (job.exchange.rebalance) need.replicas = replica_bytes(planned.config, specs, job);
  return need;
}

double node_memory_bytes(const Job& job, const MemoryNeed& memory) {
  return memory.total() * static_cast<double>(job.layout.ranks_per_node);
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
  if (point.job.layout.mesh.ep == 1) return "-";
  std::string text(name_of(point.job.exchange.dispatcher));
  if (point.job.exchange.chunks > 0) text += " in " + std::to_string(point.job.exchange.chunks);
  return text;
}

std::string gmm_text(const PredictedPoint& point) {
  return !point.grouped ? "loop" : point.packs ? "gmm, packed" : "gmm";
}

Index busy_node_ranks(const PlannedJob& planned) {
  const Index on_node = std::min(planned.job.layout.ranks_per_node, planned.ranks());
  return std::clamp<Index>(
      planned.job.layout.processors_per_node / std::max<Index>(planned.job.layout.threads, 1), 1, on_node);
}

}  // namespace moeloom
