// What a run will do, decided once: from what is asked for and what is known of model, mesh and machine to
// kernels, dtype, the experts' path, the dispatcher, chunks and the memory of a rank, with a reason for
// each. `moeloom train` obeys it, `moeloom plan` prints it.
//
// Nothing here looks at a clock, a file or another rank (run_facts.hpp does), so that the same facts always
// give the same run.
#pragma once

#include "moeloom/kernels/registry.hpp"
#include "plan/cost/rebalance_cost.hpp"
#include "plan/cost/step_cost.hpp"
#include "plan/decide/compute_dtype.hpp"
#include "plan/decide/dispatcher_ways.hpp"
#include "plan/memory/memory_need.hpp"
#include "plan/memory/row_budget.hpp"
#include "plan/rates/built_in_rates.hpp"
#include "plan/rates/calibration.hpp"

#include <optional>
#include <string>

namespace moeloom {

/// What a run does with its weights: it changes them, reads each a few times, or once for a few rows.
enum class Use { kTraining, kScoring, kDecoding };

/// What is asked for; what is none or auto is left to decide().
struct RunRequest {
  Use use = Use::kTraining;
  std::string kernels = "auto";  // for KernelRegistry::apply_all
  std::string kernels_reason = {};
  bool fused_ops = true;  // rmsnorm, rope and swiglu may be fused
  GmmRequest gmm = GmmRequest::kAuto;
  std::string gmm_reason = {};
  Index gmm_budget_bytes = Index{4} << 30;  // of a layer
  DType dtype = DType::kF32;
  Bf16Request bf16 = Bf16Request::kBest;
  AskedExchange exchange = {};
  Index row_budget = 0;      // MoeContext's; 0: as many rows as come, or as the ceiling leaves room for
  Index memory_ceiling = 0;  // bytes of a rank; 0: none
  // Checkpoints are written from a copy while steps go on; none: where a memory ceiling leaves room for it
  std::optional<bool> save_copy = false;
};

/// "auto", "alltoall", ...: how a request for a dispatcher is written.
std::string_view name_of(const std::optional<DispatcherKind>& request);
/// Every request that can be written, auto first.
std::vector<std::optional<DispatcherKind>> dispatcher_requests();

/// What is known before anything is decided. Of the job the exchange is decide()'s own to choose, but for the
/// rows of experts.
struct RunFacts {
  ModelConfig model;
  Job job;
  Index ep_nodes = 1;                            // the most nodes that the ranks of one ep row lie on
  std::string no_node_memory = {};               // why ranks cannot open each other's memory; empty: they can
  std::string no_bf16 = {};                      // why a rank has no bf16 instructions; empty: all have
  Bf16Unit bf16_unit = best_bf16_unit();         // the slowest of any rank
  bool avx512 = false;                           // every rank's CPU has it
  std::optional<GmmDecision> recorded = {};      // by an earlier part of the run; auto keeps it
  std::optional<GmmPrediction> prediction = {};  // of a layer's experts; none: by the rates
  MachineRates rates = built_in_rates();
  std::string rates_source = "built-in rates";
  std::vector<ParameterSpec> parameters = {};  // of a rank; none: memory is not predicted
  double data_bytes = 0;                       // for what is trained on: tables, and pages of mapped files
  double program_bytes = 0;                    // that a rank holds already beside it
};

/// Why an exchange is as it is, a sentence each.
struct ExchangeReasons {
  std::string dispatcher = {};
  std::string chunks = {};
  std::string overlap_reduce = {};
  std::string overlap_gather = {};
  std::string rebalance = {};
};

struct RowBudgetDecision {
  Index rows = 0;  // MoeContext's
  std::string reason = {};
  std::optional<RowRoom> room = {};  // what the memory ceiling leaves, perhaps nothing; none: no ceiling
};

struct RunDecision {
  KernelTable table;
  std::vector<KernelReport> kernels;
  std::string kernels_request;  // "auto: ..."
  GmmDecision gmm;
  std::string gmm_request;
  ComputeDtype dtype;
  ExchangeReasons why;
  std::optional<RebalanceRates> rates = {};  // by which replicas are made; none: there are none
  std::string exact;  // what sums with the same bits on every mesh cost a rank; empty: they are off
  RowBudgetDecision row_budget;
  bool save_copy = false;  // is counted, and may be made
  MemoryNeed memory;       // of a rank, whose experts get as many rows as the other ranks'
  /// In bytes, where they get all that may come to one rank, as an untrained router may have it; as `memory`
  /// where a budget keeps the rows, or nodes share them out.
  double most_memory = 0;

  /// The job as it will run.
  Job job;
};

/// Pure. Throws ConfigError, with the way out, for what was asked for by name and cannot run: a kernel, a
/// dispatcher, chunks, replicas, settings of a wire that nothing crosses.
RunDecision decide(const RunFacts& facts, const RunRequest& request);

/// What the GMM policy weighs of a run; packed: what packed faces would hold.
GmmFacts gmm_facts(const RunFacts& facts, const RunRequest& request, DType packed);

/// What products multiply: what was asked for where this machine has it, else fp32.
DType product_dtype(const RunFacts& facts, const RunRequest& request);

/// Seconds of a layer's experts for one micro-batch: as predicted for the path, or 18 T K D F operations at
/// the rates' speed.
double expert_seconds(const RunFacts& facts, const GmmDecision& gmm);

/// Of a layer and micro-batch, both passes: seconds that its exchange adds to the step, in so many chunks.
double exchange_seconds(const RunFacts& facts, const RunRequest& request, DispatcherKind kind, Index chunks,
                        double expert_seconds);

}  // namespace moeloom
