#include "moeloom/train/lasting_memory.hpp"

#include <cstdint>

namespace moeloom {

LastingMemory lasting_memory(const std::vector<ParameterSpec>& specs, const MeshShape& mesh, bool exact) {
  LastingMemory need;
  for (const ParameterSpec& spec : specs) {
    const double each = spec.stored == DType::kBF16 ? sizeof(std::uint16_t) : sizeof(float);
    const double bytes = each * static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
    const bool is_dense = spec.placement == Placement::kWorld;
    (is_dense ? need.dense_weights : need.expert_weights) += bytes;
    if (spec.frozen) continue;
    (is_dense ? need.dense_gradients : need.expert_gradients) += bytes;
    if (exact) need.exact_sums += bytes * sizeof(std::int64_t) / sizeof(float);
    need.moments += 2 * bytes / static_cast<double>(is_dense ? mesh.world() : mesh.dp);
  }
  return need;
}

}  // namespace moeloom
