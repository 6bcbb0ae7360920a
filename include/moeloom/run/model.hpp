// A mixture-of-experts language model in somebody's training loop: their batches, their loop; our ranks,
// kernels and optimizer. Who wants files, checkpoints and records too has Training (training.hpp).
//
//   Model model(Mesh(Communicator::world(), {.ep = 2}), ModelConfig::read(folder), {.batch = batch});
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

struct ModelSettings {
  BatchShape batch = {};  // of a step over all ranks; also what is decided by
  Keeping keeping = {};
  AskedExchange exchange = {};
  std::string kernels = "auto";  // "none", or ids with commas
  GmmRequest gmm = GmmRequest::kAuto;
  DType dtype = DType::kF32;  // of products: kF32 or kBF16
  OptimizerSettings optimizer = {};
  Schedule schedule = {};
  RoutingSettings routing = {};
  double aux_loss_coef = 0;
  double z_loss_coef = 0;
  double router_bias_rate = 0;  // of biases of the choice; 0: they stay
  OnNan on_nan = OnNan::kStop;
  std::uint64_t seed = 0;  // of first weights
};

/// Of one optimizer step, the same on every rank.
struct StepLosses {
  double loss = 0;     // what was differentiated: lm_loss + coefficients times aux_loss and z_loss
  double lm_loss = 0;  // nats a token, mean over the global batch
  double aux_loss = 0, z_loss = 0;
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  Index tokens = 0;      // of the global batch, without padding
  Index targets = 0;     // of them learned
  bool skipped = false;  // not finite, and left out
};

/// Every function is collective over the mesh's world but those that say otherwise. They throw AgreedError,
/// the same on every rank; after any other exception, of one rank alone, the job has to end
/// (abort_all_ranks).
class Model {
 public:
  /// With first weights drawn by settings.seed: the same on every mesh. Decides what runs as the program does
  /// (`moeloom plan`); a rank has the threads that OpenMP has here. Throws AgreedError for what was asked for
  /// by name and cannot run, and where the model does not fit into memory.
  Model(Mesh mesh, const ModelConfig& config, const ModelSettings& settings = {});
  Model(Model&&) noexcept;
  ~Model();

  /// Weights of a Hugging Face folder or a checkpoint; its tokenizer files go along when the model is saved.
  void load(const std::filesystem::path& folder);
  /// A new or empty folder that transformers reads. dtype: kF32, kBF16 or kF16.
  void save(const std::filesystem::path& folder, DType dtype = DType::kF32);

  /// One optimizer step on this rank's micro-batches: settings.batch.micro_batches of them, each of
  /// sequences_per_micro_batch(ranks) sequences.
  StepLosses step(const std::vector<Batch>& micro_batches);
  /// Updates done.
  Index steps() const;
  /// Mean of -log p over the counted targets of all ranks' batches, each rank giving equally many. Routers
  /// choose token by token.
  double evaluate(const std::vector<Batch>& batches);
  /// Of each target -log p [T]; 0 where a token has none. Collective over ep.
  std::vector<double> token_losses(const Batch& batch);
  /// logits [T, V] of every token. Collective over ep.
  Matrix logits(const Batch& batch);
  /// This rank's prompt and at most `tokens` that follow; a rank with an empty prompt lends its experts.
  /// Any of end_tokens ends a text.
  std::vector<std::int32_t> generate(std::vector<std::int32_t> prompt, Index tokens,
                                     const SamplingSettings& sampling = {},
                                     const std::vector<std::int32_t>& end_tokens = {});

  // Of this rank alone.
  const ModelConfig& config() const;
  const Mesh& mesh() const;
  /// What runs, and why; another table from the next forward on, as an edit of one's own
  /// (KernelRegistry::apply).
  const KernelTable& kernels() const;
  const std::vector<KernelReport>& kernel_reports() const;
  void use(const KernelTable& kernels);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace moeloom
