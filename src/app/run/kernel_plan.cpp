#include "run/kernel_plan.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/family.hpp"
#include "moeloom/plan/rates/calibration.hpp"
#include "moeloom/plan/rates/rate_cache.hpp"

#include <algorithm>
#include <array>

namespace moeloom {

GmmFacts gmm_facts(const KernelChoice& choice, const ModelConfig& config, const MeshShape& shape,
                   const KernelWork& work, DType packed) {
  const Index resident = experts_of(config.num_experts, shape.ep, 0).count;  // the most that a rank holds
  GmmFacts facts;
  facts.ep_size = shape.ep;
  facts.resident_bytes =
      resident * 3 * config.hidden_size * config.moe_intermediate_size * static_cast<Index>(sizeof(float));
  // One face forward, one for input gradients.
  facts.packed_bytes = facts.resident_bytes * (packed == DType::kBF16 ? 1 : 2);
  facts.budget_bytes = choice.gmm_budget_bytes;
  facts.rows_per_expert = static_cast<double>(work.tokens * shape.ep * config.num_experts_per_tok) /
                          static_cast<double>(config.num_experts);
  facts.uses_per_packing = work.uses_per_packing;
  facts.may_pack = work.may_pack;
  return facts;
}

GmmCase gmm_case(const ModelConfig& config, const GmmFacts& facts) {
  const auto rows = static_cast<Index>(facts.rows_per_expert + 0.5);
  return {config.hidden_size, config.moe_intermediate_size,
          experts_of(config.num_experts, *facts.ep_size, 0).count, std::max<Index>(rows, 1), *facts.ep_size};
}

namespace {

/// This machine's rates of the case, from the user's cache or measured; says in the plan which.
GmmRates find_rates(const GmmCase& wanted, const KernelChoice& choice, const EnvironmentFlags& flags,
                    KernelPlan& plan) {
  const GmmCase measured = calibration_case(wanted);
  plan.rates_file = rate_cache_file(flags.cache_folder);
  const RateAnswer answer =
      cached_rates(plan.rates_file, rate_machine(plan.grouped.element), measured, choice.calibrate,
                   [&](const GmmCase& c) { return measure_gmm_rates(c, kCalibrationSeconds, plan.grouped); });
  plan.rates = answer.cached ? "cached" : "measured";
  plan.rates_warning = answer.warning;
  return scaled(answer.rates, measured, wanted);
}

/// Rank 0's rates, everywhere: the decision must be one.
GmmPrediction predict_on_rank_0(const GmmCase& wanted, double uses_per_packing, const KernelChoice& choice,
                                const EnvironmentFlags& flags, const Communicator& world, KernelPlan& plan) {
  std::array<double, 3> seconds{};
  if (world.rank() == 0) {
    const GmmPrediction prediction = predict(find_rates(wanted, choice, flags, plan), uses_per_packing);
    seconds = {prediction.loop_seconds, prediction.gmm_seconds, prediction.packed_seconds};
  }
  world.broadcast(std::as_writable_bytes(std::span(seconds)), 0);
  return {.loop_seconds = seconds[0], .gmm_seconds = seconds[1], .packed_seconds = seconds[2]};
}

GmmDecision decide(GmmRequest request, GmmFacts facts, const KernelChoice& choice,
                   const EnvironmentFlags& flags, const ModelConfig& config, const KernelWork& work,
                   const Communicator& world, KernelPlan& plan) {
  if (!config.has_experts()) return {.apply = false, .reason = "this model has no experts"};
  const bool chooses = request == GmmRequest::kAuto || request == GmmRequest::kMeasure;
  if (work.recorded && chooses)  // whose kernel stays; how it reads the weights changes no bit
    return {work.recorded->apply, "as the run recorded: " + work.recorded->reason,
            decide_gmm(GmmRequest::kForce, facts).packs};
  if (request == GmmRequest::kMeasure)
    facts.prediction = plan.prediction =
        predict_on_rank_0(gmm_case(config, facts), facts.uses_per_packing, choice, flags, world, plan);
  return decide_gmm(request, facts);
}

DtypeFacts dtype_facts(const KernelChoice& choice, const EnvironmentFlags& flags, const Communicator& world) {
  DtypeFacts facts{.asked = choice.dtype,
                   .emulate = flags.emulate_bf16,
                   .why_no_bf16 = {},
                   .why_no_fused_moe = {},
                   .why_no_tiled_dense = {}};
  const std::vector<std::string> reasons = world.all_gather_text(std::string(why_no_bf16()));
  for (std::size_t rank = 0; rank < reasons.size() && facts.why_no_bf16.empty(); ++rank)
    if (!reasons[rank].empty())
      facts.why_no_bf16 = (rank > 0 ? "rank " + std::to_string(rank) + ": " : "") + reasons[rank];
  return facts;
}

/// Why a kernel is not applied; empty if it is.
std::string why_not(const std::vector<KernelReport>& reports, std::string_view id) {
  for (const KernelReport& report : reports)
    if (report.id == id && !report.applied) return report.reason;
  return {};
}

GroupedMatmulKernel grouped_matmul_in(DType type) {
  return type == DType::kBF16 ? packed_bf16_grouped_matmul() : packed_grouped_matmul();
}

}  // namespace

GmmRequestChoice gmm_request(const KernelChoice& choice, const EnvironmentFlags& flags) {
  GmmRequestChoice request = choose_gmm_request(flags, choice.gmm_rule);
  if (request.request == GmmRequest::kAuto && !flags.gmm) {
    if (KernelRegistry::builtin().named(choice.kernels).contains("fused_moe"))
      request = {GmmRequest::kForce, "--kernels names fused_moe"};
    else if (choice.calibrate)
      request = {GmmRequest::kMeasure, "--calibrate asks for it"};
  }
  if (choice.calibrate && request.request != GmmRequest::kMeasure)
    throw ConfigError({"--calibrate times what GMM request measure chooses from, but the request is " +
                       std::string(name_of(request.request)) + " (" + request.reason +
                       "); set MOELOOM_GMM_PATCH=measure, or choose --calibrate no"});
  return request;
}

KernelPlan plan_kernels(const KernelChoice& choice, const EnvironmentFlags& flags, const ModelConfig& config,
                        const MeshShape& shape, const KernelWork& work, const Communicator& world) {
  KernelPlan plan;
  const KernelRequestChoice kernels = choose_kernels(flags, choice.kernels);
  const GmmRequestChoice gmm = gmm_request(choice, flags);
  plan.gmm_request = std::string(name_of(gmm.request)) + ": " + gmm.reason;
  plan.kernels_request = kernels.kernels + ": " + kernels.reason;
  DtypeFacts dtype = dtype_facts(choice, flags, world);
  plan.grouped = grouped_matmul_in(decide_dtype(dtype).type);
  plan.gmm = decide(gmm.request, gmm_facts(choice, config, shape, work, plan.grouped.element), choice, flags,
                    config, work, world, plan);
  plan.grouped.uses_packed = plan.gmm.packs;
  const KernelContext context{.model_type = config.model_type,
                              .known_model_type = config.family().refusal.empty(),
                              .hidden_act = config.hidden_act,
                              .has_experts = config.has_experts(),
                              .fused_ops_enabled = flags.fused_ops,
                              .gmm = plan.gmm,
                              .rows = work.tokens};
  agree(world,
        [&] { plan.reports = KernelRegistry::builtin().apply_all(kernels.kernels, plan.table, context); });
  dtype.why_no_fused_moe = why_not(plan.reports, "fused_moe");
  dtype.why_no_tiled_dense = why_not(plan.reports, "tiled_dense");
  plan.dtype = decide_dtype(dtype);
  if (dtype.why_no_fused_moe.empty()) plan.table.grouped_matmul = plan.grouped;
  if (dtype.why_no_tiled_dense.empty() && plan.dtype.type == DType::kBF16)
    plan.table.dense = tiled_bf16_dense();
  return plan;
}

std::optional<double> predicted_seconds(const KernelPlan& plan) {
  if (!plan.prediction) return std::nullopt;
  const GmmPrediction& seconds = *plan.prediction;
  if (!plan.gmm.apply) return seconds.loop_seconds;
  return plan.gmm.packs ? seconds.packed_seconds : seconds.gmm_seconds;
}

std::optional<GmmWatch> watch_of(const KernelPlan& plan) {
  // Where --kernels leaves fused_moe out, the policy decides nothing.
  const bool decided = std::ranges::any_of(plan.reports, [&](const KernelReport& report) {
    return report.id == "fused_moe" && report.reason == plan.gmm.reason;
  });
  if (!decided || !plan.prediction) return std::nullopt;
  GmmPrediction prediction = *plan.prediction;
  if (plan.gmm.packs) prediction.gmm_seconds = prediction.packed_seconds;
  return GmmWatch(plan.gmm.apply, prediction);
}

void use_path(KernelPlan& plan, bool grouped) {
  plan.table.grouped_matmul = grouped ? plan.grouped : native_grouped_matmul();
}

void revise(KernelPlan& plan, const GmmDecision& decision) {
  for (KernelReport& report : plan.reports)
    if (report.id == "fused_moe") report = {report.id, decision.apply, decision.reason};
  plan.gmm = {decision.apply, decision.reason, plan.gmm.packs};
  use_path(plan, decision.apply);
}

void log_kernels(Log& log, const KernelPlan& plan) {
  log.info(Event().with("gmm_request", plan.gmm_request));
  Event decision;
  decision.with("gmm", plan.gmm.apply).with("reason", plan.gmm.reason);
  if (!plan.rates.empty()) decision.with("rates", plan.rates).with("rates_file", plan.rates_file.string());
  log.info(decision);
  if (!plan.rates_warning.empty()) log.warn(Event().with("rates_warning", plan.rates_warning));
  log.info(Event().with("dtype", dtype_text(plan.dtype.type)).with("reason", plan.dtype.reason));
  log.info(Event().with("kernels_request", plan.kernels_request));
  for (const KernelReport& report : plan.reports)
    log.info(Event().with("kernel", report.id).with("applied", report.applied).with("reason", report.reason));
}

}  // namespace moeloom
