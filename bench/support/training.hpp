// A model in training on tokens that nothing can learn, as the benchmarks of whole steps measure it.
#pragma once

#include "moeloom/base/random.hpp"
#include "moeloom/train/trainer.hpp"
#include "moeloom/train/training_state.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <unistd.h>

#include "support/dtype.hpp"
#include "support/routing.hpp"

namespace moeloom::bench {

/// A file of bytes that nothing can learn, gone at the end.
class RandomText {
 public:
  explicit RandomText(int rank)
      : path_(std::filesystem::temp_directory_path() /
              ("moeloom_bench_" + std::to_string(getpid()) + "_" + std::to_string(rank))) {
    std::ofstream file(path_, std::ios::binary);
    const CounterRandom random(1, stream_of("text"));
    for (std::uint64_t i = 0; i < 1 << 16; ++i) file.put(static_cast<char>(random.bits(i) & 0xff));
    if (!file.flush()) throw std::runtime_error("cannot write " + path_.string());
  }
  ~RandomText() { std::filesystem::remove(path_); }
  RandomText(const RandomText&) = delete;
  RandomText& operator=(const RandomText&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// What one rank does a step.
struct RankBatch {
  Index sequences = 0;
  Index sequence_length = 0;
};

/// Fused kernels everywhere; `grouped`: dense layers and experts on our tiles, else on OpenBLAS.
inline KernelTable kernels_of(bool grouped, DType dtype) {
  KernelTable table{.rmsnorm = fused_rmsnorm(), .rope = fused_rope(), .swiglu = fused_swiglu()};
  if (!grouped) return table;
  table.grouped_matmul = packed_kernel(dtype);
  table.dense = dtype == DType::kBF16 ? tiled_bf16_dense() : tiled_dense();
  table.grouped_matmul.uses_packed = false;  // one micro-batch a step
  return table;
}

/// Tokens of random text choose experts as `routing` says: an embedding holds its token's logits, eight
/// apart, which layers of initial weights hardly move, and every router reads them.
inline void route_as(Routing routing, const ModelConfig& model, ParameterStore& store) {
  if (routing == Routing::kRandom) return;
  write_logits(routing, 0, model.num_experts_per_tok, model.num_experts,
               store.find("model.embed_tokens.weight").value);
  for (Index layer = 0; layer < model.num_hidden_layers; ++layer)
    read_logits(store.find("model.layers." + std::to_string(layer) + ".mlp.gate.weight").value);
  store.mark_changed();
}

/// A model in training with one path of the experts' products.
class Subject {
 public:
  Subject(const ModelConfig& model, const RankBatch& batch, const Mesh& mesh, const TokenSource& tokens,
          const KernelTable& kernels, Routing routing = Routing::kRandom,
          const DispatcherSettings& dispatcher = {})
      : state_(model, mesh, {.kernels = kernels, .dispatcher = dispatcher}),
        batch_{.global_batch = batch.sequences * mesh.world().size(),
               .sequence_length = batch.sequence_length,
               .accumulation = 1,
               .world = mesh.world().size()},
        sampler_(tokens, split_tokens(tokens.size(), 0.1), batch_, 1),
        trainer_(state_.decoder, state_.store, mesh, state_.optimizer, sampler_,
                 {.schedule = {.peak = 1e-4, .warmup_steps = 1, .total_steps = 1000},
                  .batch = batch_,
                  .aux_loss_coef = 0.001}) {
    initialise(state_.store, model, 1);
    route_as(routing, model, state_.store);
  }

  StepReport step() { return trainer_.step(next_++); }

 private:
  TrainingState state_;
  BatchShape batch_;
  BatchSampler sampler_;
  Trainer trainer_;
  Index next_ = 0;
};

}  // namespace moeloom::bench
