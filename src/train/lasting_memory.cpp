#include "moeloom/train/lasting_memory.hpp"

#include <cstdint>

namespace moeloom {
namespace {

/// Of one number.
double moment_bytes(MomentFormat format) {
  const auto [elements, words] = unit_of(format);
  return sizeof(float) * static_cast<double>(words) / static_cast<double>(elements);
}

}  // namespace

LastingMemory lasting_memory(const std::vector<ParameterSpec>& specs, const MeshShape& mesh, bool exact,
                             MomentFormat moments, OptimizerKind optimizer) {
  LastingMemory need;
  for (const ParameterSpec& spec : specs) {
    const double each = spec.stored == DType::kBF16 ? sizeof(std::uint16_t) : sizeof(float);
    const double bytes = each * static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
    const bool is_dense = spec.placement == Placement::kWorld;
    (is_dense ? need.dense_weights : need.expert_weights) += bytes;
    if (spec.frozen) continue;
    (is_dense ? need.dense_gradients : need.expert_gradients) += bytes;
    if (exact) need.exact_sums += bytes * sizeof(std::int64_t) / sizeof(float);
    need.moments += (is_of_muon(spec, optimizer) ? 1 : 2) * bytes / sizeof(float) * moment_bytes(moments) /
                    static_cast<double>(is_dense ? mesh.world() : mesh.dp);
  }
  return need;
}

}  // namespace moeloom
