#include "train/lasting_memory.hpp"

#include "train/sharded_optimizer.hpp"

#include <cstdint>

namespace moeloom {

LastingMemory lasting_memory(const std::vector<ParameterSpec>& specs, const Job& job) {
  const MeshShape& mesh = job.layout.mesh;
  const Keeping& keeping = job.keeping;
  const auto values = [&](Placement placement) {
    return ParameterStore::value_bytes(specs, placement, keeping, job.layout.ranks_per_node);
  };
  LastingMemory need = {.dense_weights = values(Placement::kWorld),
                        .expert_weights = values(Placement::kExperts)};
  if (keeping.shard_dense && mesh.world() > 1)
    need.dense_gradients = ShardedOptimizer::waiting_gradient_bytes(specs);
  for (const ParameterSpec& spec : specs) {
    if (spec.frozen) continue;
    const bool is_dense = spec.placement == Placement::kWorld;
    const double owned = spec.numbers() / static_cast<double>(is_dense ? mesh.world() : mesh.dp);
    (is_dense ? need.dense_gradients : need.expert_gradients) +=
        (is_dense && keeping.shard_dense ? owned : spec.numbers()) *
        static_cast<double>(bytes_of(spec.gradient));
    if (job.batch.exact > 0) need.exact_sums += spec.numbers() * sizeof(std::int64_t);
    need.moments += (is_of_muon(spec, keeping.optimizer) ? 1 : 2) * owned * bytes_of(keeping.moments);
  }
  return need;
}

}  // namespace moeloom
