#include "plan/decide/decide.hpp"

#include "base/text.hpp"
#include "model/hf/family.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"
#include "train/conflicts.hpp"

#include <algorithm>

#include "decide/decide_exact.hpp"
#include "decide/decide_rows.hpp"
#include "decide/decide_travel.hpp"

namespace moeloom {
namespace {

GmmDecision decide_experts(const RunFacts& facts, const RunRequest& request, DType packed) {
  if (!facts.model.has_experts()) return {.apply = false, .reason = "this model has no experts"};
  if (request.use != Use::kTraining && request.gmm == GmmRequest::kAuto)
    return {.apply = true, .reason = "each weight is read once or a few times, which no packing pays for"};
  const GmmFacts weighed = gmm_facts(facts, request, packed);
  if (facts.recorded &&
      request.gmm == GmmRequest::kAuto)  // whose path stays; how it reads the weights changes no bit
    return {facts.recorded->apply, "as the run recorded: " + facts.recorded->reason,
            facts.recorded->apply && decide_gmm(GmmRequest::kForce, weighed).packs};
  return decide_gmm(request.gmm, weighed);
}

/// -> table, kernels and dtype, by the GMM decision that is there already.
void decide_kernels(const RunFacts& facts, const RunRequest& request, DType type, RunDecision& decision) {
  const KernelContext context{.model_type = facts.model.model_type,
                              .known_model_type = facts.model.family().refusal.empty(),
                              .hidden_act = facts.model.hidden_act,
                              .has_experts = facts.model.has_experts(),
                              .fused_ops_enabled = request.fused_ops,
                              .gmm = decision.gmm,
                              // Where sums are exact or a model is asked, every mesh and batch takes the same
                              // kernels, however few its rows.
                              .rows = facts.job.batch.exact > 0 || request.use != Use::kTraining
                                          ? kLargestCount
                                          : facts.job.tokens()};
  decision.kernels = KernelRegistry::builtin().apply_all(request.kernels, decision.table, context);
  const DtypeFacts dtype{.asked = request.dtype,
                         .bf16 = request.bf16,
                         .unit = facts.bf16_unit,
                         .why_no_bf16 = facts.no_bf16,
                         .why_no_fused_moe = why_not_applied(decision.kernels, "fused_moe"),
                         .why_no_tiled_dense = why_not_applied(decision.kernels, "tiled_dense")};
  decision.dtype = decide_dtype(dtype);
  if (decision.gmm.apply && !dtype.why_no_fused_moe.empty())
    decision.gmm = {false, "the loop, because fused_moe is not applied: " + dtype.why_no_fused_moe};
  if (dtype.why_no_fused_moe.empty()) {
    decision.table.grouped_matmul =
        type == DType::kBF16 ? packed_bf16_grouped_matmul(decision.dtype.unit) : packed_grouped_matmul();
    decision.table.grouped_matmul.uses_packed = decision.gmm.packs;
  }
  if (dtype.why_no_tiled_dense.empty() && decision.dtype.type == DType::kBF16)
    decision.table.dense = tiled_bf16_dense(decision.dtype.unit);
  if (request.use != Use::kDecoding) return;
  if (dtype.why_no_tiled_dense.empty()) decision.table.dense = streamed_dense();
  if (dtype.why_no_fused_moe.empty() && request.gmm == GmmRequest::kAuto)
    decision.table.grouped_matmul = streamed_grouped_matmul();
}

/// The job with what is asked of its exchange, by such a way.
Job with_way(Job job, const AskedExchange& asked, DispatcherKind kind, Index chunks) {
  job.exchange = asked.over(job.exchange);
  job.exchange.dispatcher = kind;
  job.exchange.chunks = chunks;
  return job;
}

std::string time_text(std::int64_t nanoseconds) {
  return nanoseconds == 0 ? "nothing" : milliseconds_text(1e-9 * static_cast<double>(nanoseconds));
}

/// "a row 1 ms, an expert's weights 2 ms, its gradients nothing"
std::string way_text(const CrossingNanoseconds& way) {
  return "a row " + time_text(way.row) + ", an expert's weights " + time_text(way.weights) +
         ", its gradients " + time_text(way.gradients);
}

/// "a row's products take 1 ms; on a node a row ...; between nodes a row ... (built-in rates)", of the ways
/// that there are.
std::string rates_text(const RunFacts& facts, const RebalanceRates& rates) {
  std::string text = "a row's products take " + time_text(rates.row_products);
  if (facts.ep_nodes < facts.job.layout.mesh.ep) text += "; on a node " + way_text(rates.on_node);
  if (facts.ep_nodes > 1) text += "; between nodes " + way_text(rates.between_nodes);
  return text + " (" + facts.rates_source + ")";
}

std::string why_rebalance(const RunFacts& facts, const RunDecision& decision) {
  const Exchange& exchange = decision.job.exchange;
  if (!decision.rates) return "rebalance = off";
  std::string reason = "rebalance = on: " + rates_text(facts, *decision.rates);
  const DispatcherWay& way = way_of(exchange.dispatcher);
  const bool leaves = facts.ep_nodes > 1;
  if (!decision.gmm.apply) reason += "; the loop rounds by rows at a time, so last bits may change";
  if (leaves && way.sums_before_wire && exchange.combine == CombineMode::kFast)
    reason += "; combine = fast sums by the node that computes, so last bits depend on replicas";
  if (leaves && way.rounds == OnWire::kBetweenNodes && exchange.wire == WireDType::kBf16)
    reason += "; wire dtype = bf16 rounds by the node that computes, so bits depend on replicas";
  return reason;
}

/// A step's need with what decide() knows beside the step.
MemoryNeed with_the_rest(MemoryNeed need, const RunFacts& facts, const RunDecision& decision) {
  need.data = facts.data_bytes;
  need.program = facts.program_bytes;
  if (decision.job.exchange.rebalance)
    need.replicas = replica_bytes(facts.model, facts.parameters, decision.job);
  if (decision.save_copy) need.save_copy = save_copy_bytes(facts.parameters, facts.job);
  return need;
}

RowRoom room_within(const RunFacts& facts, Index ceiling, DType type, const RunDecision& decision) {
  const auto need = [&](Index rows) {
    return with_the_rest(
        memory_of_rows(facts.model, facts.parameters, decision.job, decision.gmm.packs, type, rows), facts,
        decision);
  };
  return row_room(static_cast<double>(ceiling), row_range(facts.model, decision.job), need);
}

std::string rows_text(Index rows) {
  return std::to_string(rows) + (rows == 1 ? " row" : " rows");
}

std::string room_text(const RowRoom& room, Index ceiling) {
  const std::string total = bytes_text(room.memory.total());
  const std::string begin = "memory ceiling = " + bytes_text(static_cast<double>(ceiling));
  if (!room.fits()) return begin + " is less than the " + total + " that a rank needs";
  if (room.range.most == 0) return begin + ": a rank needs " + total + ", and no layer has experts";
  if (room.rows == 0)
    return begin + ": even the " + rows_text(room.range.most) +
           " of a layer that may come to one rank fit, with " + total;
  return begin + " leaves room for " + rows_text(room.rows) + " of a layer at once, " +
         readable(static_cast<double>(room.rows) / static_cast<double>(room.range.balanced), 3) +
         " times the balanced " + std::to_string(room.range.balanced) + ", with which a rank needs " + total;
}

/// Packed copies, and those of saves, are for speed: rows come first.
bool copies_crowd_out(const RowRoom& room) {
  return !room.fits() || (room.rows > 0 && room.rows < room.range.balanced);
}

void decide_row_budget(const RunFacts& facts, const RunRequest& request, DType type, RunDecision& decision) {
  RowBudgetDecision& budget = decision.row_budget;
  budget = {.rows = request.row_budget, .reason = "row budget = " + std::to_string(request.row_budget)};
  if (request.memory_ceiling == 0) return;
  budget.room = room_within(facts, request.memory_ceiling, type, decision);
  if (!request.save_copy && copies_crowd_out(*budget.room)) {
    decision.save_copy = false;
    budget.room = room_within(facts, request.memory_ceiling, type, decision);
  }
  if (decision.gmm.packs && copies_crowd_out(*budget.room)) {
    decision.gmm.packs = decision.table.grouped_matmul.uses_packed = false;
    decision.gmm.reason +=
        "; they read the masters after all, because packed copies do not fit memory ceiling = " +
        bytes_text(static_cast<double>(request.memory_ceiling));
    budget.room = room_within(facts, request.memory_ceiling, type, decision);
  }
  const std::string text = room_text(*budget.room, request.memory_ceiling);
  const Index left = budget.room->rows;
  if (budget.rows > 0 && (left == 0 || budget.rows <= left)) {
    budget.reason += " is less; " + text;
    return;
  }
  budget.rows = left;
  budget.reason = text;
}

/// -> row budget and memory; packs no experts where the ceiling has no room for that.
void decide_memory(const RunFacts& facts, const RunRequest& request, DType type, RunDecision& decision) {
  decision.save_copy = request.save_copy.value_or(true);
  decide_row_budget(facts, request, type, decision);
  decision.memory = with_the_rest(
      step_memory(facts.model, facts.parameters, decision.job, decision.gmm.packs, type), facts, decision);
  const std::optional<RowRoom>& room = decision.row_budget.room;
  if (room && room->memory.total() < decision.memory.total()) decision.memory = room->memory;
  decision.most_memory = decision.memory.total();
  const Index most = row_range(facts.model, decision.job).most;
  if (most == 0 || decision.row_budget.rows > 0) return;
  const MemoryNeed need = with_the_rest(
      memory_of_rows(facts.model, facts.parameters, decision.job, decision.gmm.packs, type, most), facts,
      decision);
  decision.most_memory = std::max(decision.most_memory, need.total());
}

}  // namespace

std::string_view name_of(const std::optional<DispatcherKind>& request) {
  return request ? name_of(*request) : "auto";
}

DType product_dtype(const RunFacts& facts, const RunRequest& request) {
  const bool can = request.bf16 == Bf16Request::kEmulate || facts.no_bf16.empty();
  return request.dtype == DType::kBF16 && can ? DType::kBF16 : DType::kF32;
}

std::vector<std::optional<DispatcherKind>> dispatcher_requests() {
  std::vector<std::optional<DispatcherKind>> requests = {std::nullopt};
  requests.insert(requests.end(), kDispatcherKinds.begin(), kDispatcherKinds.end());
  return requests;
}

GmmFacts gmm_facts(const RunFacts& facts, const RunRequest& request, DType packed) {
  const ModelConfig& model = facts.model;
  const Job& job = facts.job;
  const Index resident =
      experts_of(model.num_experts, job.layout.mesh.ep, 0).count;  // the most that a rank holds
  GmmFacts weighed;
  weighed.ep_size = job.layout.mesh.ep;
  weighed.expert_bytes =
      3 * model.hidden_size * model.moe_intermediate_size * static_cast<Index>(sizeof(float));
  weighed.resident_bytes = resident * weighed.expert_bytes;
  // One face forward, one for input gradients.
  weighed.packed_bytes = weighed.resident_bytes * (packed == DType::kBF16 ? 1 : 2);
  weighed.budget_bytes = request.gmm_budget_bytes;
  weighed.rows_per_expert =
      static_cast<double>(job.tokens() * job.layout.mesh.ep * model.num_experts_per_tok) /
      static_cast<double>(model.num_experts);
  weighed.uses_per_packing = static_cast<double>(job.batch.micro_batches);
  weighed.on_disk = job.keeping.offloads();
  weighed.avx512 = facts.avx512;
  // OpenBLAS rounds by the rows of a call, which depend on ep: no world of several ranks may show it.
  weighed.loop_may_run = packed == DType::kF32 && job.batch.exact == 0 && job.layout.mesh.world() == 1;
  return weighed;
}

double expert_seconds(const RunFacts& facts, const GmmDecision& gmm) {
  const ModelConfig& model = facts.model;
  if (!model.has_experts()) return 0;
  if (const auto& seconds = facts.prediction)
    return !gmm.apply ? seconds->loop_seconds : gmm.packs ? seconds->packed_seconds : seconds->gmm_seconds;
  const auto rows = static_cast<double>(facts.job.tokens() * model.num_experts_per_tok);
  const double an_expert =
      rows * static_cast<double>(facts.job.layout.mesh.ep) / static_cast<double>(model.num_experts);
  return 18 * rows * static_cast<double>(model.hidden_size * model.moe_intermediate_size) /
         dense_flops_at(facts.rates, std::max(an_expert, 1.0));
}

double exchange_seconds(const RunFacts& facts, const RunRequest& request, DispatcherKind kind, Index chunks,
                        double expert_seconds) {
  const Job job = with_way(facts.job, request.exchange, kind, chunks);
  const ExchangeRates links = link_rates(facts.rates, job);
  const ExchangeSeconds rows = overlapped_exchange(facts.model, job, links, expert_seconds);
  return rows.dispatch + rows.combine + plan_seconds_of_layer(facts.model, job, facts.rates, links);
}

RunDecision decide(const RunFacts& facts, const RunRequest& request) {
  RunDecision decision;
  decision.kernels_request = request.kernels + ": " + request.kernels_reason;
  decision.gmm_request = std::string(name_of(request.gmm)) + ": " + request.gmm_reason;
  const DType type = product_dtype(facts, request);
  decision.gmm = decide_experts(facts, request, type);
  decision.gmm.packs = decision.gmm.packs && decision.gmm.apply;
  decide_kernels(facts, request, type, decision);
  const RowsDecision rows = decide_rows(facts, request, expert_seconds(facts, decision.gmm));
  decision.job = with_way(facts.job, request.exchange, rows.dispatcher, rows.chunks);
  decision.why.dispatcher = rows.why_dispatcher;
  decision.why.chunks = rows.why_chunks;
  const TravelDecision travel = decide_travel(request.exchange, decision.job);
  decision.job.exchange.overlap_reduce = travel.overlap_reduce;
  decision.job.exchange.overlap_gather = travel.overlap_gather;
  decision.why.overlap_reduce = travel.why_reduce;
  decision.why.overlap_gather = travel.why_gather;
  if (decision.job.exchange.rebalance)
    decision.rates = rebalance_rates(facts.model, facts.parameters, decision.job, facts.rates);
  decision.why.rebalance = why_rebalance(facts, decision);
  if (!facts.parameters.empty()) decide_memory(facts, request, type, decision);
  Violations violations;
  check_exact(facts, decision, violations);
  violations.add(conflicts(decision.job, decision.row_budget.rows));
  violations.throw_if_any();
  decision.exact = exact_cost(facts, decision);
  return decision;
}

}  // namespace moeloom
