#include "moeloom/train/lasting_memory.hpp"

#include "moeloom/model/parts/node_halves.hpp"
#include "moeloom/train/moments.hpp"
#include "moeloom/train/muon_weights.hpp"

#include <algorithm>
#include <cstdint>
#include <map>

namespace moeloom {
namespace {

/// Of one number.
double moment_bytes(MomentFormat format) {
  const auto [elements, words] = unit_of(format);
  return sizeof(float) * static_cast<double>(words) / static_cast<double>(elements);
}

/// The most that is not reduced yet of dense gradients, which are dropped then: of a part of a backward, and
/// of the one before, whose sums still travel.
double gradients_under_way(const std::vector<ParameterSpec>& specs) {
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

}  // namespace

LastingMemory lasting_memory(const std::vector<ParameterSpec>& specs, const Job& job) {
  const MeshShape& mesh = job.layout.mesh;
  const Keeping& keeping = job.keeping;
  LastingMemory need;
  std::map<Index, double> layers_on_disk;
  if (keeping.shard_dense && mesh.world() > 1) need.dense_gradients = gradients_under_way(specs);
  for (const ParameterSpec& spec : specs) {
    const double numbers = static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
    const bool is_dense = spec.placement == Placement::kWorld;
    const bool on_disk = keeping.offloads() && !is_dense && spec.frozen && is_half(spec.stored);
    if (on_disk) layers_on_disk[spec.layer] += numbers * static_cast<double>(bytes_of(spec.stored));
    (is_dense ? need.dense_weights : need.expert_weights) +=
        on_disk ? 0.0
                : numbers * static_cast<double>(bytes_of(spec.stored)) /
                      static_cast<double>(is_kept_once(spec) || (is_dense && keeping.shard_dense)
                                              ? job.layout.ranks_per_node
                                              : 1);
    if (spec.frozen) continue;
    const double owned = numbers / static_cast<double>(is_dense ? mesh.world() : mesh.dp);
    (is_dense ? need.dense_gradients : need.expert_gradients) +=
        (is_dense && keeping.shard_dense ? owned : numbers) * static_cast<double>(bytes_of(spec.gradient));
    if (job.batch.exact > 0) need.exact_sums += numbers * sizeof(std::int64_t);
    need.moments += (is_of_muon(spec, keeping.optimizer) ? 1 : 2) * owned * moment_bytes(keeping.moments);
  }
  double largest = 0;
  for (const auto& [layer, bytes] : layers_on_disk) largest = std::max(largest, bytes);
  need.expert_weights += std::min<double>(2, static_cast<double>(layers_on_disk.size())) * largest;
  return need;
}

}  // namespace moeloom
