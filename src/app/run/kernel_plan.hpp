// Which kernels a run uses: flags, environment, policy and registry brought together, the same on every rank.
#pragma once

#include "moeloom/comm/mesh.hpp"
#include "moeloom/kernels/registry.hpp"
#include "moeloom/plan/decide/compute_dtype.hpp"
#include "moeloom/plan/rates/calibration.hpp"

#include "cli/environment.hpp"
#include "run/gmm_watch.hpp"

namespace moeloom {

struct KernelPlan {
  KernelTable table;
  std::vector<KernelReport> reports;
  GmmDecision gmm;
  ComputeDtype dtype;
  std::string gmm_request;  // "auto: MOELOOM_GMM_PATCH is unset"
  std::string kernels_request;
  GroupedMatmulKernel grouped = packed_grouped_matmul();  // what GMM means in this run: fp32 or bf16
  std::optional<GmmPrediction> prediction;                // that the decision was made by
  // On the rank that found the rates; empty elsewhere, and where no prediction was needed.
  std::string rates;                 // "measured" or "cached"
  std::filesystem::path rates_file;  // the user's cache; empty: there is none
  std::string rates_warning;
};

/// What the policy weighs beside the model and the mesh.
struct KernelWork {
  Index tokens = 0;                     // of one rank and micro-batch
  double uses_per_packing = 1;          // micro-batches a step
  std::optional<GmmDecision> recorded;  // by an earlier part of the run; auto and measure keep it
  bool may_pack = true;                 // GmmFacts::may_pack
};

/// What the policy weighs, without a prediction; packed: what packed faces hold.
GmmFacts gmm_facts(const KernelChoice& choice, const ModelConfig& config, const MeshShape& shape,
                   const KernelWork& work, DType packed);
/// The experts' products that these facts are of.
GmmCase gmm_case(const ModelConfig& config, const GmmFacts& facts);

/// The flags' request, or what the options ask for where no flag is set: --calibrate is asking for measure,
/// and naming fused_moe for force. Throws ConfigError for --calibrate beside another request.
GmmRequestChoice gmm_request(const KernelChoice& choice, const EnvironmentFlags& flags);

/// Under measure rank 0 times this machine for a second or knows it from the user's cache, and its answer
/// holds everywhere. Collective over the world. Throws AgreedError for a kernel asked for by name that cannot
/// run, ConfigError as gmm_request does.
KernelPlan plan_kernels(const KernelChoice& choice, const EnvironmentFlags& flags, const ModelConfig& config,
                        const MeshShape& shape, const KernelWork& work, const Communicator& world);

/// Of a layer's expert products in a step, as the path that was chosen was predicted; none if nothing was.
std::optional<double> predicted_seconds(const KernelPlan& plan);

/// Watches a decision that was predicted; none for a request, or a decision that the run recorded.
std::optional<GmmWatch> watch_of(const KernelPlan& plan);
/// The table's path of the experts alone: a trial.
void use_path(KernelPlan& plan, bool grouped);
/// The decision itself, with its kernel's report.
void revise(KernelPlan& plan, const GmmDecision& decision);

/// One line a decision.
void log_kernels(Log& log, const KernelPlan& plan);

}  // namespace moeloom
