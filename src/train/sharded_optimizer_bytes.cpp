// What reductions of gradients hold, counted before any of it is there.
#include "comm/travelling_sum.hpp"
#include "train/sharded_optimizer.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace moeloom {
namespace {

/// Ranks that share a parameter, and those of them that share a node where its sums are made node by node.
struct NodeSharers {
  Index ranks, each;
  Index nodes() const { return ranks / each; }
};
NodeSharers node_sharers(Placement placement, const Layout& layout) {
  const MeshShape& mesh = layout.mesh;
  const Index ranks_per_node = layout.ranks_per_node;
  NodeSharers of = placement == Placement::kWorld ? NodeSharers{mesh.world(), ranks_per_node}
                   : mesh.ep_is_fastest() ? NodeSharers{mesh.dp, std::max<Index>(ranks_per_node / mesh.ep, 1)}
                                          : NodeSharers{mesh.dp, std::min(ranks_per_node, mesh.dp)};
  const bool subtrees = std::has_single_bit(at(of.each)) && of.ranks % of.each == 0;
  if (!subtrees || of.each == of.ranks) of.each = 1;
  return of;
}

/// Numbers that the sum of a bucket holds, of which one rank owns `owned`: what each rank has for an owner,
/// and where nodes add up first, what a node's ranks have for owners on other nodes.
Index summed_numbers(Index bucket, Index owned, const NodeSharers& of) {
  return TravellingSum::numbers(bucket, owned, of.nodes(), of.each);
}

Index trained_numbers(const std::vector<ParameterSpec>& specs, Placement placement, Storage gradient) {
  Index numbers = 0;
  for (const ParameterSpec& spec : specs)
    if (spec.placement == placement && spec.gradient == gradient && !spec.frozen)
      numbers += spec.rows * spec.cols;
  return numbers;
}

}  // namespace

double ShardedOptimizer::reduction_bytes(const std::vector<ParameterSpec>& specs, const Job& job) {
  Index unit = 0;  // a weight of Muon's is not cut
  for (const ParameterSpec& spec : specs)
    if (is_of_muon(spec, job.keeping.optimizer)) unit = std::max(unit, spec.rows / spec.groups * spec.cols);
  const bool travels = job.exchange.overlap_reduce || job.keeping.shard_dense;
  const Index most = (travels ? kBucketsAtOnce : 1) * std::max(kBucketElements, unit);
  double largest = 0;
  for (const Placement placement : kPlacements)
    for (const Storage gradient : {Storage::kFp32, Storage::kBf16}) {
      NodeSharers of = node_sharers(placement, job.layout);
      if (of.ranks == 1) continue;
      if (gradient == Storage::kBf16) of.each = 1;  // rounded once
      const Index bucket = std::min(trained_numbers(specs, placement, gradient), most);
      const Index owned = std::max(ceil_div(bucket, of.ranks), std::min(bucket, unit));
      largest = std::max(largest, job.batch.exact > 0
                                      ? array_bytes(owned, sizeof(std::int64_t))
                                      : array_bytes(summed_numbers(bucket, owned, of), bytes_of(gradient)));
    }
  return largest;
}

/// Of a part of a backward, and of the one before, whose sums still travel.
double ShardedOptimizer::waiting_gradient_bytes(const std::vector<ParameterSpec>& specs) {
  std::map<Index, double> parts;
  for (const ParameterSpec& spec : specs)
    if (spec.placement == Placement::kWorld && !spec.frozen)
      parts[part_of_backward(spec)] += static_cast<double>(spec.rows * spec.cols) * sizeof(float);
  const auto of = [&](Index part) { return parts.contains(part) ? parts.at(part) : 0.0; };
  const Index layers = parts.empty() ? 0 : std::max<Index>(parts.rbegin()->first + 1, 0);
  double most = std::max(of(kHeadPart) + of(layers - 1), of(kEmbeddingPart) + of(0));
  for (Index layer = 1; layer < layers; ++layer) most = std::max(most, of(layer) + of(layer - 1));
  return most;
}

}  // namespace moeloom
