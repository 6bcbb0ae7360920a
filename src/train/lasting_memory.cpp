#include "moeloom/train/lasting_memory.hpp"

#include "moeloom/model/node_halves.hpp"

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
                             MomentFormat moments, OptimizerKind optimizer, Index sharers) {
  LastingMemory need;
  for (const ParameterSpec& spec : specs) {
    const double numbers = static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
    const bool is_dense = spec.placement == Placement::kWorld;
    (is_dense ? need.dense_weights : need.expert_weights) +=
        numbers * static_cast<double>(bytes_of(spec.stored)) /
        static_cast<double>(is_kept_once(spec) ? sharers : 1);
    if (spec.frozen) continue;
    (is_dense ? need.dense_gradients : need.expert_gradients) += numbers * sizeof(float);
    if (exact) need.exact_sums += numbers * sizeof(std::int64_t);
    need.moments += (is_of_muon(spec, optimizer) ? 1 : 2) * numbers * moment_bytes(moments) /
                    static_cast<double>(is_dense ? mesh.world() : mesh.dp);
  }
  return need;
}

}  // namespace moeloom
