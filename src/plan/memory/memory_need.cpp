#include "plan/memory/memory_need.hpp"

#include "model/decoder.hpp"
#include "train/sharded_optimizer.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <variant>

namespace moeloom {
namespace {

TripShape trip_of(const MoeSpec& moe, const Job& job, LayerRows rows) {
  const Index ep = job.layout.mesh.ep;
  const bool on_one = job.exchange.dispatcher == DispatcherKind::kShared;
  return {.kind = job.exchange.dispatcher,
          .chunks = job.exchange.chunks,
          .ranks = ep,
          .nodes = on_one ? 1 : ep / job.layout.ep_on_node(),
          .experts = moe.router.num_experts,
          .tokens = job.tokens(),
          .top_k = moe.router.top_k,
          .cols = moe.hidden_size,
          .rows = rows};
}

/// Bytes of a layer: of each kind of mixer, then of the rest of the block and its halves. What backward makes
/// again stands last, and is made again from some place on.
enum LayerPart : std::size_t {
  kMixers = 0,
  kBlock = std::variant_size_v<MixerSpec>,
  kNorms,
  kMoe,
  kMlp,
  kParts
};
using LayerParts = std::array<double, kParts>;

LayerPart first_made_again(Recompute recompute) {
  return recompute == Recompute::kNone ? kParts : recompute == Recompute::kExperts ? kNorms : kMixers;
}

double sum_of(const LayerParts& parts, std::size_t begin, std::size_t end) {
  return std::accumulate(parts.begin() + begin, parts.begin() + end, 0.0);
}

LayerParts activations_of(const LayerSpec& layer, const Job& job, LayerRows rows) {
  const Index t = job.tokens();
  LayerParts parts{};
  parts[layer.mixer.index()] = MixerActivations::bytes_of(layer.mixer, t);
  parts[kBlock] = LayerActivations::bytes_of(layer, t);
  parts[kNorms] = LayerNormed::bytes_of(layer, t);
  if (layer.mlp) parts[kMlp] = MlpLayer::bytes_of(*layer.mlp, t);
  if (!layer.moe) return parts;
  const MoeSpec& moe = *layer.moe;
  parts[kMoe] = ExpertActivations::bytes_of(trip_of(moe, job, rows), moe.width);
  if (moe.shared) parts[kMoe] += SharedExpertActivations::bytes_of(t, moe.shared->width, moe.shared->gated);
  return parts;
}

LayerParts workspace_of(const LayerSpec& layer, const Job& job, LayerRows rows) {
  const Index t = job.tokens();
  LayerParts parts{};
  parts[kBlock] = DecoderWorkspace::bytes_of(layer, t);
  parts[layer.mixer.index()] = MixerWorkspace::bytes_of(layer.mixer, t, job.batch.length, job.layout.threads);
  if (layer.mlp) parts[kMlp] = MlpWorkspace::bytes_of(*layer.mlp, t);
  if (!layer.moe) return parts;
  const MoeSpec& moe = *layer.moe;
  const TripShape trip = trip_of(moe, job, rows);
  parts[kMoe] = MoeWorkspace::bytes_of(trip, moe.width) + Dispatcher::bytes_of(trip);
  if (moe.shared) parts[kMoe] += SharedExpertWorkspace::bytes_of(t, moe.shared->width);
  if (moe.output_scale != 1) parts[kMoe] += rows_bytes(t, {moe.hidden_size});
  return parts;
}

/// Of buffers that all layers share.
template <typename PartsOf>
LayerParts largest(const ModelConfig& config, const Job& job, LayerRows rows, PartsOf parts_of) {
  LayerParts all{};
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    std::ranges::transform(all, parts_of(config.layer(layer), job, rows), all.begin(),
                           [](double a, double b) { return std::max(a, b); });
  return all;
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
  for (Index index = 0; index < config.num_hidden_layers; ++index) {
    const LayerSpec layer = config.layer(index);
    bytes += DecoderLayer::bytes_of(layer, job.tokens()) +
             sum_of(activations_of(layer, job, rows), 0, first_made_again(job.keeping.recompute));
    if (layer.moe) bytes += MoeLayer::bytes_of(layer.moe->router, trip_of(*layer.moe, job, rows));
  }
  return bytes;
}

double buffer_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                    LayerRows rows) {
  const Index t = job.tokens();
  const LayerParts made_again = largest(config, job, rows, activations_of);
  const bool from_its_input = job.keeping.recompute == Recompute::kBlock;
  return Decoder::bytes_of(config, job) + sum_of(largest(config, job, rows, workspace_of), 0, kParts) +
         sum_of(made_again, first_made_again(job.keeping.recompute), kParts) +
         (from_its_input ? rows_bytes(t, {config.hidden_size}) : 0.0) + adapter_bytes(specs, job, rows) +
         ShardedOptimizer::reduction_bytes(specs, job) +
         ShardedOptimizer::matrix_bytes(specs, job.keeping.optimizer);
}

bool experts_in_node_memory(const Job& job) {
  return job.exchange.dispatcher != DispatcherKind::kAlltoall;
}

std::map<Index, ReplicaTraffic> replica_traffic(const std::vector<ParameterSpec>& specs, const Job& job) {
  constexpr Index kLine = 64;
  std::map<Index, ReplicaTraffic> layers;
  for (const ParameterSpec& spec : specs) {
    if (spec.placement != Placement::kExperts) continue;
    const Index each = spec.rows / spec.groups * spec.cols;
    const bool is_on_disk = job.keeping.offloads() && spec.frozen && is_half(spec.stored);
    // Products read the high half of what is split.
    const Index lines = ceil_div(each * (spec.stored == Storage::kFp32 ? 4 : 2), kLine);
    const auto bytes = static_cast<double>(kLine * lines);
    ReplicaTraffic& expert = layers[spec.layer];
    expert.weights += bytes;
    if (!experts_in_node_memory(job) || is_on_disk) expert.weights_on_node += bytes;
    if (!spec.frozen) expert.trained += each;
  }
  return layers;
}

double replica_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job) {
  const MeshShape& mesh = job.layout.mesh;
  if (mesh.ep == 1 || !config.has_experts()) return 0;
  const bool on_one_node = job.layout.ep_on_node() == mesh.ep;
  const Index own = experts_of(config.num_experts, mesh.ep, 0).count;
  const bool one_set = job.keeping.recompute != Recompute::kNone;  // of all layers
  double tables = 0, weights = 0, sums = 0;
  for (const auto& [layer, expert] : replica_traffic(specs, job)) {
    tables += ReplicaPlan::bytes_of(mesh.ep, config.num_experts);
    const double of_layer =
        static_cast<double>(own) * (on_one_node ? expert.weights_on_node : expert.weights);
    weights = one_set ? std::max(weights, of_layer) : weights + of_layer;
    if (expert.trained > 0)
      sums = std::max(sums, ExpertRunner::sum_bytes(own, expert.trained, mesh.ep, job.batch.exact > 0));
  }
  return tables + weights + sums * (experts_in_node_memory(job) ? RowBuffer::kGrowth : 1);
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
