#include "moeloom/plan/memory/memory_need.hpp"

#include "moeloom/model/parts/layer_spec.hpp"
#include "moeloom/moe/dispatch/dispatch_plan.hpp"
#include "moeloom/train/sharded_optimizer.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "memory/dropout_memory.hpp"
#include "memory/mixer_memory.hpp"

namespace moeloom {
namespace {

constexpr Index kIndex = sizeof(Index);

/// A BranchOutput's input, and its norm's output and scales.
double branch_output(const LayerSpec& layer, const std::optional<NormSpec>& norm, Index t) {
  if (norm) return rows_bytes(t, norm->width, 2) + rows_bytes(t, 1);
  return layer.residual_scale != 1 ? rows_bytes(t, layer.hidden_size) : 0.0;
}

/// What a norm before a block leaves.
double normed(const LayerSpec& layer, const std::optional<NormSpec>& norm, Index t) {
  return norm ? rows_bytes(t, layer.hidden_size) + rows_bytes(t, 1) : 0.0;
}

/// DispatchPlan: both ways keep the order of leaving; then either the order of landing or each slot's place.
double plan_bytes(const MoeSpec& moe, const Job& job, Index slots, Index rows) {
  const Index ep = job.layout.mesh.ep;
  const Index experts = moe.router.num_experts;
  const double leaving = array_bytes(slots, 2 * kIndex) + array_bytes(2 * experts + 2 * ep, kIndex);
  if (job.exchange.dispatcher == DispatcherKind::kShared)
    return leaving + array_bytes(slots, sizeof(Landing));
  return leaving + (ep > 1 ? array_bytes(rows, kIndex) : 0.0);
}

/// Rows of a RowBuffer. In memory that ranks share it grows by a quarter at least, which rows of slices, no
/// two of which have as many, make it do.
Index buffered_rows(const Job& job, LayerRows rows) {
  const DispatcherKind kind = job.exchange.dispatcher;
  const bool in_node_memory = kind == DispatcherKind::kShared || kind == DispatcherKind::kHierarchical;
  return rows.sliced() && in_node_memory ? rows.at_once + rows.at_once / 4 : rows.at_once;
}

/// MoeActivations but for the experts'.
double routing_activations(const MoeSpec& moe, const Job& job, LayerRows rows) {
  const Index t = job.tokens();
  const Index slots = t * moe.router.top_k;
  const double routing =
      rows_bytes(t, moe.router.num_experts, 2) + rows_bytes(t, 1, 2) + 3 * array_bytes(slots) +
      (moe.router.weigh_by == WeighBy::kSoftmaxOfNear ? rows_bytes(slots, moe.router.num_experts) : 0) +
      (moe.router.balance_by == BalanceBy::kScore ? array_bytes(slots) : 0);
  return routing + plan_bytes(moe, job, slots, std::max(rows.at_once, rows.planned));
}

/// ExpertActivations and what the shared expert keeps.
double expert_activations(const MoeSpec& moe, const Job& job, LayerRows rows) {
  const Index t = job.tokens();
  const double experts = rows_bytes(buffered_rows(job, rows), moe.hidden_size) +
                         rows_bytes(rows.at_once, 2 * moe.width) + array_bytes(rows.at_once);
  const double shared =
      moe.shared ? rows_bytes(t, 2 * moe.shared->width) + (moe.shared->gated ? array_bytes(t) : 0) : 0.0;
  return experts + shared;
}

/// What the backward of a feed-forward half can make again.
double feed_forward_activations(const LayerSpec& layer, const Job& job, LayerRows rows) {
  return layer.moe ? expert_activations(*layer.moe, job, rows)
                   : rows_bytes(job.tokens(), 2 * layer.mlp->width);
}

/// What a norm gives, but for the scales of its rows.
double normed_rows(const LayerSpec& layer, const std::optional<NormSpec>& norm, Index t) {
  return norm ? rows_bytes(t, layer.hidden_size) : 0.0;
}

/// LayerNormed.
double normed_activations(const LayerSpec& layer, Index t) {
  return normed_rows(layer, layer.mixer_norm, t) + normed_rows(layer, layer.feed_forward_norm, t);
}

/// LayerActivations but for the mixer itself and what norms give.
double block_activations(const LayerSpec& layer, Index t) {
  return rows_bytes(t, layer.hidden_size) + normed(layer, layer.mixer_norm, t) +
         normed(layer, layer.feed_forward_norm, t) - normed_activations(layer, t);
}

double layer_activations(const LayerSpec& layer, const Job& job, LayerRows rows) {
  const Index t = job.tokens();
  double bytes = rows_bytes(t, layer.hidden_size) + branch_output(layer, layer.mixer_output_norm, t) +
                 branch_output(layer, layer.feed_forward_output_norm, t);
  if (layer.moe) bytes += routing_activations(*layer.moe, job, rows);
  if (job.keeping.recompute != Recompute::kBlock)
    bytes += block_activations(layer, t) + mixer_activations(layer.mixer, t);
  if (job.keeping.recompute == Recompute::kNone)
    bytes += normed_activations(layer, t) + feed_forward_activations(layer, job, rows);
  return bytes;
}

/// Of activations that backward makes again, one set for all layers.
double activations_made_again(const ModelConfig& config, const Job& job, LayerRows rows) {
  if (job.keeping.recompute == Recompute::kNone) return 0;
  MixerActivationsOnce mixers;
  double moe = 0, mlp = 0, norms = 0, block = 0;
  for (Index index = 0; index < config.num_hidden_layers; ++index) {
    const LayerSpec layer = config.layer(index);
    double& half = layer.moe ? moe : mlp;
    half = std::max(half, feed_forward_activations(layer, job, rows));
    norms = std::max(norms, normed_activations(layer, job.tokens()));
    block = std::max(block, block_activations(layer, job.tokens()));
    mixers.take(layer.mixer, job.tokens());
  }
  if (job.keeping.recompute == Recompute::kExperts) return moe + mlp + norms;
  return moe + mlp + norms + block + mixers.bytes() + rows_bytes(job.tokens(), config.hidden_size);
}

/// Of MoeWorkspace what slices take, of which there are two at least.
double slice_workspace(const MoeSpec& moe, const Job& job, LayerRows rows) {
  const Index tokens = ceil_div(job.tokens(), 2), slots = tokens * moe.router.top_k;
  return array_bytes(slots) + plan_bytes(moe, job, slots, rows.at_once);
}

/// MoeWorkspace: activated and its gradient, the rows that go home and those that come back for backward.
double moe_workspace(const MoeSpec& moe, const Job& job, LayerRows rows) {
  const double shared =
      moe.shared ? rows_bytes(job.tokens(), moe.shared->width, 2) + array_bytes(job.tokens()) : 0.0;
  return rows_bytes(rows.at_once, moe.width, 2) + rows_bytes(buffered_rows(job, rows), moe.hidden_size, 2) +
         array_bytes(rows.at_once) + array_bytes(job.tokens() * moe.router.top_k) + shared +
         (rows.sliced() ? slice_workspace(moe, job, rows) : 0.0);
}

/// Of experts' adapters, as much as the layer needs that needs most: dU of all that is added to a product,
/// and U of one addition.
double adapter_workspace(const std::vector<ParameterSpec>& specs, Index rows) {
  std::map<std::string, Index> ranks;  // added to a parameter
  Index largest = 0;
  for (const ParameterSpec& spec : specs) {
    if (!spec.adapter || !spec.adapter->is_a || spec.placement != Placement::kExperts) continue;
    const Index rank = spec.rows / spec.groups;
    ranks[spec.adapter->base] += rank;
    largest = std::max(largest, rank);
  }
  std::map<std::string, Index> most;  // by product
  for (const auto& [base, rank] : ranks) {
    Index& of_product = most[base.substr(base.rfind('.') + 1)];
    of_product = std::max(of_product, rank);
  }
  double bytes = rows_bytes(rows, largest);
  for (const auto& [product, rank] : most) bytes += rows_bytes(rows, rank);
  return bytes;
}

/// What the dispatcher itself holds of rows under way: packed to leave and as they arrived, and
/// everyone's tokens where all get all.
double rows_under_way(const ModelConfig& config, const Job& job, LayerRows rows) {
  const DispatcherKind kind = job.exchange.dispatcher;
  const Index ep = job.layout.mesh.ep;
  if (ep == 1 || !config.has_experts()) return 0;
  if (kind == DispatcherKind::kShared)  // the others' rows are theirs; counts and scalars are ours
    return array_bytes(ep * config.num_experts, kIndex) + 3 * array_bytes(rows.at_once);
  const double both_ends = rows_bytes(job.tokens() * config.num_experts_per_tok, config.hidden_size) +
                           rows_bytes(rows.at_once, config.hidden_size);
  // Its outputs return as those of alltoall.
  if (kind == DispatcherKind::kAllgather)
    return rows_bytes(job.tokens() * ep, config.hidden_size) + both_ends;
  if (job.exchange.chunks > 0 && kind == DispatcherKind::kHierarchical) {
    // Tokens that leave and arrive have places of their own beside sums, which both_ends is enough for.
    const Index other_nodes = ceil_div(ep, job.layout.ranks_per_node) - 1;
    return both_ends + 2 * rows_bytes(job.tokens() * std::min(config.num_experts_per_tok, other_nodes),
                                      config.hidden_size);
  }
  if (job.exchange.chunks > 0)  // what comes home has a place of its own
    return both_ends + rows_bytes(job.tokens() * config.num_experts_per_tok, config.hidden_size);
  return both_ends;
}

/// Ranks that share a parameter, and those of them that share a node where its sums are made node by node.
struct Sharers {
  Index ranks, on_node;
};
Sharers sharers_of(Placement placement, const Layout& layout) {
  const MeshShape& mesh = layout.mesh;
  const Index ranks_per_node = layout.ranks_per_node;
  Sharers of = placement == Placement::kWorld ? Sharers{mesh.world(), ranks_per_node}
               : mesh.ep_is_fastest()         ? Sharers{mesh.dp, std::max<Index>(ranks_per_node / mesh.ep, 1)}
                                              : Sharers{mesh.dp, std::min(ranks_per_node, mesh.dp)};
  const bool subtrees =
      std::has_single_bit(static_cast<std::size_t>(of.on_node)) && of.ranks % of.on_node == 0;
  if (!subtrees || of.on_node == of.ranks) of.on_node = 1;
  return of;
}

/// Numbers that the sum of a bucket holds, of which one rank owns `owned`: what each rank has for an owner,
/// and where nodes add up first, what a node's ranks have for owners on other nodes.
Index summed_numbers(Index bucket, Index owned, Sharers of, bool travels) {
  if (of.on_node == 1) return of.ranks * owned;
  const Index nodes = of.ranks / of.on_node;
  if (travels) return of.on_node * std::min(bucket, nodes * owned) + nodes * owned;
  return std::max(of.ranks * owned, (nodes - 1) * owned + std::max(of.on_node, nodes) * owned);
}

/// The scratch of the largest bucket of a gradient reduction; of several that travel at once. With exact sums
/// a rank's own stretch as integers.
double reduction_scratch(const std::vector<ParameterSpec>& specs, const Job& job) {
  double largest = 0;
  Index unit = 0;  // a weight of Muon's is not cut
  for (const ParameterSpec& spec : specs)
    if (is_of_muon(spec, job.keeping.optimizer)) unit = std::max(unit, spec.rows / spec.groups * spec.cols);
  const Index most = std::max(ShardedOptimizer::kBucketElements, unit);
  const bool travels = job.exchange.overlap_reduce || job.keeping.shard_dense;
  for (const Placement placement : kPlacements) {
    Sharers of = sharers_of(placement, job.layout);
    if (of.ranks == 1) continue;
    for (const Storage gradient : {Storage::kFp32, Storage::kBf16}) {
      Index trained = 0;
      for (const ParameterSpec& spec : specs)
        if (spec.placement == placement && spec.gradient == gradient && !spec.frozen)
          trained += spec.rows * spec.cols;
      if (gradient == Storage::kBf16) of.on_node = 1;  // rounded once
      const Index bucket = std::min(trained, (travels ? ShardedOptimizer::kBucketsAtOnce : 1) * most);
      const Index owned = std::max(ceil_div(bucket, of.ranks), std::min(bucket, unit));
      largest = std::max(largest,
                         job.batch.exact > 0
                             ? array_bytes(owned, sizeof(std::int64_t))
                             : array_bytes(summed_numbers(bucket, owned, of, travels), bytes_of(gradient)));
    }
  }
  return largest;
}

/// What Muon holds of the weights that it orthogonalises together: U, a stack of matrices and its product,
/// and two of their Gram matrices.
double muon_scratch(const std::vector<ParameterSpec>& specs, OptimizerKind optimizer) {
  double largest = 0;
  for (const ParameterSpec& spec : specs) {
    if (!is_of_muon(spec, optimizer)) continue;
    const Index rows = spec.rows / spec.groups;
    const Index weights =
        std::clamp<Index>(ShardedOptimizer::kBucketElements / (rows * spec.cols), 1, spec.groups);
    double stacked = 0;
    for (const Stretch& matrix : matrices_of(spec)) {
      const Index m = std::min(matrix.size(), spec.cols), n = std::max(matrix.size(), spec.cols);
      stacked = std::max(stacked, rows_bytes(weights * m, n, 2) + rows_bytes(weights * m, m, 2));
    }
    largest = std::max(largest, rows_bytes(weights * rows, spec.cols) + stacked);
  }
  return largest;
}

}  // namespace

double packed_bytes(const std::vector<ParameterSpec>& specs, DType element) {
  double bytes = 0;
  for (const ParameterSpec& spec : specs)
    if (spec.placement == Placement::kExperts && spec.is_matrix && !spec.adapter)
      bytes += (element == DType::kBF16 ? 1 : 2) * array_bytes(spec.rows * spec.cols);
  return bytes;
}

double activation_bytes(const ModelConfig& config, const Job& job, LayerRows rows) {
  double bytes = 0;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    bytes += layer_activations(config.layer(layer), job, rows);
  return bytes;
}

double buffer_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                    LayerRows rows) {
  const Index t = job.tokens();
  MixerBuffers mixers;
  double ffn_moe = 0, ffn_mlp = 0;
  for (Index index = 0; index < config.num_hidden_layers; ++index) {
    const LayerSpec layer = config.layer(index);
    mixers.take(layer.mixer, t, job.batch.length, job.layout.threads);
    if (layer.moe) ffn_moe = moe_workspace(*layer.moe, job, rows);
    if (layer.mlp) ffn_mlp = rows_bytes(t, layer.mlp->width, 2);
  }
  const LayerSpec first = config.layer(0);
  const bool scaled = first.residual_scale != 1;
  const Index branches =
      (first.mixer_output_norm || scaled ? 1 : 0) + (first.feed_forward_output_norm || scaled ? 1 : 0);
  const double stream = rows_bytes(t, config.hidden_size, 5 + branches) + rows_bytes(t, 1, 2);
  const double logits = rows_bytes(std::min(t, kSumChunkRows * job.layout.threads), config.vocab_size);
  const Index angles = job.batch.length * config.rotary_dim();
  return mixers.bytes() + ffn_moe + adapter_workspace(specs, rows.at_once) + ffn_mlp + stream + logits +
         array_bytes(angles) + activations_made_again(config, job, rows) + rows_under_way(config, job, rows) +
         reduction_scratch(specs, job) + muon_scratch(specs, job.keeping.optimizer) +
         dropout_bytes(specs, job, rows);
}

namespace {

/// Branches of the tree of sums that a rank makes or adds up. Sources are taken from near to far in the tree,
/// so that a replica computes at most log2(ep) branches, and leaves as many and one to the owner; a single
/// hot expert may have one of each rank instead.
Index most_branches(Index resident, Index ep) {
  const Index levels = std::bit_width(at(ep - 1));
  return std::max(resident * (1 + levels), ep) + resident * levels;
}

}  // namespace

double replica_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                     const MeshShape& mesh) {
  if (mesh.ep == 1 || !config.has_experts()) return 0;
  const Index resident = experts_of(config.num_experts, mesh.ep, 0).count;
  const Index atoms = mesh.ep * config.num_experts;
  const bool trains = std::ranges::any_of(
      specs, [](const ParameterSpec& spec) { return spec.placement == Placement::kExperts && !spec.frozen; });
  double weights = 0, sums = 0;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerSpec spec = config.layer(layer);
    if (!spec.moe) continue;
    const Index matrix = spec.moe->hidden_size * spec.moe->width;
    const Index hidden_bias = spec.moe->expert_bias ? spec.moe->hidden_size : 0;
    const Index inter_bias = spec.moe->expert_bias ? 2 * spec.moe->width : 0;
    weights += array_bytes(resident * 2 * matrix) + array_bytes(resident * matrix);
    weights += array_bytes(resident * inter_bias) + array_bytes(resident * hidden_bias);
    weights +=
        2 * array_bytes(atoms, kIndex) + 2 * array_bytes(atoms, sizeof(std::int32_t));  // ReplicaPlan's
    if (trains)
      sums = std::max(
          sums, array_bytes(most_branches(resident, mesh.ep) * (3 * matrix + inter_bias + hidden_bias)));
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
