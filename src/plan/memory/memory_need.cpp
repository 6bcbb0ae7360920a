#include "moeloom/plan/memory/memory_need.hpp"

#include "moeloom/model/decoder.hpp"
#include "moeloom/train/sharded_optimizer.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <variant>

namespace moeloom {
namespace {

TripShape trip_of(const MoeSpec& moe, const Job& job, LayerRows rows) {
  return TripShape::of(job, moe.router.num_experts, moe.router.top_k, moe.hidden_size, rows);
}

/// Of sets of buffers of which every kind of mixer has one, which serves all layers.
class LargestByMixer {
 public:
  void take(const MixerSpec& mixer, double bytes) {
    largest_[mixer.index()] = std::max(largest_[mixer.index()], bytes);
  }
  double sum() const { return std::accumulate(largest_.begin(), largest_.end(), 0.0); }

 private:
  std::array<double, std::variant_size_v<MixerSpec>> largest_{};
};

/// What the backward of a feed-forward half can make again.
double feed_forward_bytes(const LayerSpec& layer, const Job& job, LayerRows rows) {
  if (!layer.moe) return MlpLayer::bytes_of(*layer.mlp, job.tokens());
  const MoeSpec& moe = *layer.moe;
  return ExpertActivations::bytes_of(trip_of(moe, job, rows), moe.width) +
         (moe.shared ? SharedExpertActivations::bytes_of(job.tokens(), moe.shared->width, moe.shared->gated)
                     : 0.0);
}

double layer_bytes(const LayerSpec& layer, const Job& job, LayerRows rows) {
  const Index t = job.tokens();
  const Recompute recompute = job.keeping.recompute;
  double bytes = DecoderLayer::bytes_of(layer, t);
  if (layer.moe) bytes += MoeActivations::bytes_of(layer.moe->router, trip_of(*layer.moe, job, rows));
  if (recompute != Recompute::kBlock)
    bytes += LayerActivations::bytes_of(layer, t) + MixerActivations::bytes_of(layer.mixer, t);
  if (recompute == Recompute::kNone)
    bytes += LayerNormed::bytes_of(layer, t) + feed_forward_bytes(layer, job, rows);
  return bytes;
}

/// Of activations that backward makes again, one set for all layers.
double made_again_bytes(const ModelConfig& config, const Job& job, LayerRows rows) {
  if (job.keeping.recompute == Recompute::kNone) return 0;
  const Index t = job.tokens();
  LargestByMixer mixers;
  double moe = 0, mlp = 0, norms = 0, block = 0;
  for (Index index = 0; index < config.num_hidden_layers; ++index) {
    const LayerSpec layer = config.layer(index);
    double& half = layer.moe ? moe : mlp;
    half = std::max(half, feed_forward_bytes(layer, job, rows));
    norms = std::max(norms, LayerNormed::bytes_of(layer, t));
    block = std::max(block, LayerActivations::bytes_of(layer, t));
    mixers.take(layer.mixer, MixerActivations::bytes_of(layer.mixer, t));
  }
  if (job.keeping.recompute == Recompute::kExperts) return moe + mlp + norms;
  return moe + mlp + norms + block + mixers.sum() + rows_bytes(t, {config.hidden_size});
}

double workspace_bytes(const ModelConfig& config, const Job& job, LayerRows rows) {
  const Index t = job.tokens();
  LargestByMixer mixers;
  double moe = 0, mlp = 0;
  for (Index index = 0; index < config.num_hidden_layers; ++index) {
    const LayerSpec layer = config.layer(index);
    mixers.take(layer.mixer, MixerWorkspace::bytes_of(layer.mixer, t, job.batch.length, job.layout.threads));
    if (layer.mlp) mlp = MlpWorkspace::bytes_of(*layer.mlp, t);
    if (!layer.moe) continue;
    const TripShape trip = trip_of(*layer.moe, job, rows);
    moe = MoeWorkspace::bytes_of(trip, layer.moe->width) + Dispatcher::bytes_of(trip) +
          (layer.moe->shared ? SharedExpertWorkspace::bytes_of(t, layer.moe->shared->width) : 0.0);
  }
  return DecoderWorkspace::bytes_of(config.layer(0), t) + mixers.sum() + moe + mlp;
}

}  // namespace

double packed_bytes(const std::vector<ParameterSpec>& specs, DType element) {
  double bytes = 0;
  for (const ParameterSpec& spec : specs)
    if (spec.placement == Placement::kExperts && spec.is_matrix && !spec.adapter)
      bytes += PackedWeights::bytes_of(spec.rows * spec.cols, element);
  return bytes;
}

double activation_bytes(const ModelConfig& config, const Job& job, LayerRows rows) {
  double bytes = 0;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    bytes += layer_bytes(config.layer(layer), job, rows);
  return bytes;
}

double buffer_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                    LayerRows rows) {
  return Decoder::bytes_of(config, job.tokens(), job.batch.length, job.layout.threads) +
         workspace_bytes(config, job, rows) + made_again_bytes(config, job, rows) +
         adapter_bytes(specs, job, rows) + ShardedOptimizer::reduction_bytes(specs, job) +
         ShardedOptimizer::matrix_bytes(specs, job.keeping.optimizer);
}

double replica_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                     const MeshShape& mesh) {
  if (mesh.ep == 1 || !config.has_experts()) return 0;
  const bool trains = std::ranges::any_of(
      specs, [](const ParameterSpec& spec) { return spec.placement == Placement::kExperts && !spec.frozen; });
  double weights = 0, sums = 0;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerSpec spec = config.layer(layer);
    if (!spec.moe) continue;
    const ExpertShape own = {.experts = experts_of(config.num_experts, mesh.ep, 0).count,
                             .cols = spec.moe->hidden_size,
                             .width = spec.moe->width,
                             .biased = spec.moe->expert_bias};
    weights += ExpertActivations::replica_bytes(own) + ReplicaPlan::bytes_of(mesh.ep, config.num_experts);
    if (trains) sums = std::max(sums, RebalancedExperts::sum_bytes(own, mesh.ep));
  }
  return weights + sums;
}

double save_copy_bytes(const std::vector<ParameterSpec>& specs, const Job& job) {
  // Of an adapter alone, where there is one: what rests is not saved.
  std::vector<ParameterSpec> saved = specs;
  const bool adapter = std::ranges::any_of(specs, [](const auto& spec) { return spec.adapter.has_value(); });
  if (adapter) std::erase_if(saved, [](const ParameterSpec& spec) { return !spec.adapter; });
  const Keeping written = {.optimizer = job.keeping.optimizer, .moments = job.keeping.moments};
  const LastingMemory need = lasting_memory(saved, {.keeping = written, .layout = {.mesh = job.layout.mesh}});
  return need.dense_weights + need.expert_weights + need.moments;
}

MemoryNeed training_memory(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                           LayerRows rows, bool packs, DType element) {
  MemoryNeed need{lasting_memory(specs, job)};
  need.packed = packs ? packed_bytes(specs, element) : 0;
  need.activations = activation_bytes(config, job, rows);
  need.buffers = buffer_bytes(config, specs, job, rows);
  return need;
}

}  // namespace moeloom
