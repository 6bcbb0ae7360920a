#include "kernel_plan.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/kernels/calibration.hpp"

#include <algorithm>
#include <array>

#include "option_values.hpp"

namespace moeloom {
namespace {

GmmFacts facts_of(const KernelChoice& choice, const ModelConfig& config, const MeshShape& shape,
                  const KernelWork& work) {
  const Index resident = config.num_experts / shape.ep;
  GmmFacts facts;
  facts.ep_size = shape.ep;
  facts.resident_bytes =
      resident * 3 * config.hidden_size * config.moe_intermediate_size * static_cast<Index>(sizeof(float));
  facts.packed_bytes = 2 * facts.resident_bytes;  // one face forward, one for input gradients
  facts.budget_bytes = choice.gmm_budget_bytes;
  facts.rows_per_expert = static_cast<double>(work.tokens * shape.ep * config.num_experts_per_tok) /
                          static_cast<double>(config.num_experts);
  facts.uses_per_packing = work.uses_per_packing;
  return facts;
}

/// Rank 0's measurement, everywhere: the decision must be one.
GmmPrediction measure_on_rank_0(const ModelConfig& config, const GmmFacts& facts, const Communicator& world) {
  std::array<double, 2> seconds{};
  if (world.rank() == 0) {
    const Index resident = config.num_experts / *facts.ep_size;
    const auto rows = static_cast<Index>(facts.rows_per_expert + 0.5);
    const GmmCase wanted{config.hidden_size, config.moe_intermediate_size, resident, std::max<Index>(rows, 1),
                         *facts.ep_size};
    const GmmCase measured = calibration_case(wanted);
    const GmmRates rates = scaled(measure_gmm_rates(measured, kCalibrationSeconds), measured, wanted);
    const GmmPrediction prediction = predict(rates, facts.uses_per_packing);
    seconds = {prediction.loop_seconds, prediction.gmm_seconds};
  }
  world.broadcast(std::as_writable_bytes(std::span(seconds)), 0);
  return {.loop_seconds = seconds[0], .gmm_seconds = seconds[1]};
}

GmmDecision decide(GmmRequest request, GmmFacts facts, const ModelConfig& config, const KernelWork& work,
                   const Communicator& world) {
  if (!config.has_experts()) return {.apply = false, .reason = "this model has no experts"};
  if (request != GmmRequest::kAuto) return decide_gmm(request, facts);
  if (work.recorded) return {work.recorded->apply, "as the run began: " + work.recorded->reason};
  if (packed_faces_fit(facts)) facts.prediction = measure_on_rank_0(config, facts, world);
  return decide_gmm(request, facts);
}

/// Naming the kernel is asking for it: only an unset flag leaves the choice to speed.
GmmRequestChoice request_for(const KernelChoice& choice, const EnvironmentFlags& flags,
                             const std::string& kernels) {
  GmmRequestChoice request = choose_gmm_request(flags, choice.gmm_rule);
  const std::vector<std::string> ids = split(kernels, ',');
  const bool named = std::ranges::any_of(ids, [](const std::string& id) {
    return trimmed(id) == "fused_moe" || trimmed(id) == "npu_fused_moe";
  });
  if (named && request.request == GmmRequest::kAuto && !flags.gmm)
    request = {GmmRequest::kForce, "--kernels names fused_moe"};
  return request;
}

}  // namespace

KernelPlan plan_kernels(const KernelChoice& choice, const EnvironmentFlags& flags, const ModelConfig& config,
                        const MeshShape& shape, const KernelWork& work, const Communicator& world) {
  KernelPlan plan;
  const KernelRequestChoice kernels = choose_kernels(flags, choice.kernels);
  const GmmRequestChoice gmm = request_for(choice, flags, kernels.kernels);
  plan.gmm_request = std::string(name_of(gmm.request)) + ": " + gmm.reason;
  plan.kernels_request = kernels.kernels + ": " + kernels.reason;
  plan.gmm = decide(gmm.request, facts_of(choice, config, shape, work), config, work, world);
  const KernelContext context{.model_type = config.model_type,
                              .hidden_act = config.hidden_act,
                              .has_experts = config.has_experts(),
                              .fused_ops_enabled = flags.fused_ops,
                              .gmm = plan.gmm};
  agree(world,
        [&] { plan.reports = KernelRegistry::builtin().apply_all(kernels.kernels, plan.table, context); });
  return plan;
}

void log_kernels(Log& log, const KernelPlan& plan) {
  log.info(Event().with("gmm_request", plan.gmm_request));
  log.info(Event().with("gmm", plan.gmm.apply).with("reason", plan.gmm.reason));
  log.info(Event().with("kernels_request", plan.kernels_request));
  for (const KernelReport& report : plan.reports)
    log.info(Event().with("kernel", report.id).with("applied", report.applied).with("reason", report.reason));
}

}  // namespace moeloom
