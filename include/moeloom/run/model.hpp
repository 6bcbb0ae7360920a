// A mixture-of-experts language model in somebody's training loop: their batches, their loop; our ranks,
// kernels and optimizer. Who wants files, checkpoints and records too has Training (training.hpp).
//
//   Mesh mesh(Communicator::world(), {.dp = 0, .ep = 2});
//   Model model(std::move(mesh), ModelConfig::read(folder), {.batch = batch});
//   model.load(folder);
//   const StepLosses losses = model.step(micro_batches_of_this_rank);
//   model.save("tuned");
#pragma once

#include "moeloom/comm/mesh.hpp"
#include "moeloom/job/job.hpp"
#include "moeloom/kernels/registry.hpp"
#include "moeloom/model/batch.hpp"
#include "moeloom/model/hf/config.hpp"
#include "moeloom/model/sampling.hpp"
#include "moeloom/moe/routing/routing_settings.hpp"
#include "moeloom/train/optimizer_settings.hpp"
#include "moeloom/train/schedule.hpp"

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace moeloom {

/// The same on every rank.
struct ModelSettings {
  BatchShape batch = {};  // of a step over all ranks; kernels and exchange are chosen for it
  Keeping keeping = {};
  AskedExchange exchange = {};
  std::string kernels = "auto";  // as KernelRegistry::apply_all() has it
  GmmRequest gmm = GmmRequest::kAuto;
  DType dtype = DType::kF32;  // of products: kF32 or kBF16
  OptimizerSettings optimizer = {};
  Schedule schedule = {};
  RoutingSettings routing = {};
  double aux_loss_coef = 0;  // of the loss of balance (BalanceSettings); the config's own is not read
  double z_loss_coef = 0;    // of the router's z loss (Zoph et al. 2022, eq. 5)
  /// After each step, how far the biases of routers that have them (correction_bias) move towards even load
  /// (Wang et al. 2024); 0: they stay.
  double router_bias_rate = 0;
  OnNan on_nan = OnNan::kStop;
  std::uint64_t seed = 0;  // of the first weights, and of dropout in an adapter
};

/// Of one optimizer step, the same on every rank.
struct StepLosses {
  double loss = 0;     // what was differentiated: lm_loss + coefficients times aux_loss and z_loss
  double lm_loss = 0;  // cross entropy in nats a target, mean over those of the global batch
  double aux_loss = 0, z_loss = 0;  // without their coefficients
  double grad_norm = 0;             // L2 norm of all gradients, before clipping
  double learning_rate = 0;         // of this step
  Index tokens = 0;                 // of the global batch, without padding
  Index targets = 0;                // those that were counted
  bool skipped = false;             // a loss or gradient was not finite, and no weight was changed
};

/// Every function is collective over the mesh's world but those that say otherwise. They throw AgreedError,
/// the same on every rank; after any other exception, which may be of one rank alone (ShapeError for a batch,
/// CorruptError, MpiError), the job has to end (abort_all_ranks). Moved, not copied; ends before MPI does.
class Model {
 public:
  /// With first weights drawn by settings.seed: the same on every mesh. Decides kernels, dispatcher and
  /// chunks where settings leave them open; a rank has the threads that OpenMP has here (set_threads). The
  /// config passes config_violations(). Throws ShapeError, on every rank, where settings.batch does not
  /// divide over ranks and micro-batches; AgreedError for what was asked for by name and cannot run, what
  /// cannot be had together, and where the model does not fit into memory.
  Model(Mesh mesh, const ModelConfig& config, const ModelSettings& settings = {});
  Model(Model&&) noexcept;
  ~Model();

  /// Weights of a Hugging Face folder or a checkpoint, which every rank can read; no moments, and steps()
  /// goes on. Its tokenizer files go along when the model is saved. Throws AgreedError for files that are
  /// missing, damaged or of another shape; the weights are then undefined.
  void load(const std::filesystem::path& folder);
  /// Into a new or empty folder, whole or not at all, what transformers reads; of a model with an adapter
  /// what PEFT reads. dtype: kF32, kBF16 or kF16. Throws AgreedError.
  void save(const std::filesystem::path& folder, DType dtype = DType::kF32);

  /// One optimizer step on this rank's micro-batches: settings.batch.micro_batches of them, each of
  /// sequences_per_micro_batch(ranks) sequences of settings.batch.length tokens. Throws AgreedError for
  /// batches of another shape, for a step of all ranks without a counted target, and with OnNan::kStop for a
  /// loss or a gradient that is not finite.
  StepLosses step(const std::vector<Batch>& micro_batches);
  /// Steps done, with those that were skipped. Of this rank alone.
  Index steps() const;
  /// Mean of -log p in nats over the counted targets of all ranks' batches, nan without one; no weight
  /// changes. Every rank gives equally many batches; they may differ in shape, and have no sequence. Routers
  /// choose token by token. Throws AgreedError for batches that cannot be read or are not equally many.
  double evaluate(const std::vector<Batch>& batches);
  /// Of each target -log p in nats [T]; 0 for kIgnored. Batches may differ from rank to rank. Collective over
  /// ep, or with routing.row_budget, or after a step with overlap_gather, over the world.
  std::vector<double> token_losses(const Batch& batch);
  /// logits [T, V] of every token. Collective as token_losses().
  Matrix logits(const Batch& batch);
  /// Returns this rank's prompt and at most `tokens` ids that follow. Each rank may have a prompt and
  /// settings of its own; one with an empty prompt, or tokens = 0, lends its experts and gets its prompt
  /// back. Any of end_tokens ends a text, and is its last id. `sampling` must pass check().
  std::vector<std::int32_t> generate(std::vector<std::int32_t> prompt, Index tokens,
                                     const SamplingSettings& sampling = {},
                                     const std::vector<std::int32_t>& end_tokens = {});

  // Of this rank alone.
  const ModelConfig& config() const;
  const Mesh& mesh() const;
  /// What it computes with, and what became of each built-in kernel, and why.
  const KernelTable& kernels() const;
  const std::vector<KernelReport>& kernel_reports() const;
  /// Another table from the next forward on, as after an edit of one's own (KernelRegistry::apply): the same
  /// on every rank. kernel_reports() stay.
  void use(const KernelTable& kernels);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace moeloom
