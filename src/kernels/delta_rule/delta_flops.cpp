#include "delta_rule/delta_chunk.hpp"

namespace moeloom {
namespace {

/// FLOPs of each value head's whole products, by n dk dv, and triangles, by n^2 dv, and of each key head's
/// triangles, by n^2 dk.
struct Counts {
  double whole, value_triangles, key_triangles;
};

double flops(const DeltaRuleShape& shape, Counts counts) {
  using namespace delta_rule;
  double total = 0;
  for (Index s = 0; s < shape.segments(); ++s)
    for (Index c = 0; c < chunks_of(segment_of(shape, s)); ++c) {
      const auto n = static_cast<double>(chunk_rows(segment_of(shape, s), c).size());
      const auto dk = static_cast<double>(shape.key_dim), dv = static_cast<double>(shape.value_dim);
      total += static_cast<double>(shape.value_heads) *
                   (counts.whole * n * dk * dv + counts.value_triangles * n * n * dv) +
               static_cast<double>(shape.key_heads) * counts.key_triangles * n * n * dk;
    }
  return total;
}

}  // namespace

double delta_rule_forward_flops(const DeltaRuleShape& shape) {
  return flops(shape, {6, 2, 2});
}
double delta_rule_backward_flops(const DeltaRuleShape& shape) {
  return flops(shape, {14, 4, 6});
}

}  // namespace moeloom
