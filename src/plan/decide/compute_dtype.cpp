#include "plan/decide/compute_dtype.hpp"

#include <algorithm>

namespace moeloom {

std::string_view dtype_text(DType type) {
  return type == DType::kBF16 ? "bf16" : "fp32";
}

ComputeDtype decide_dtype(const DtypeFacts& facts) {
  const std::string asked = "bf16 was asked for; ";
  const std::string &moe = facts.why_no_fused_moe, &dense = facts.why_no_tiled_dense;
  if (facts.asked != DType::kBF16) return {DType::kF32, "compute dtype = fp32"};
  if (facts.bf16 != Bf16Request::kEmulate && !facts.why_no_bf16.empty())
    return {DType::kF32, asked + facts.why_no_bf16};
  if (!moe.empty() && !dense.empty())
    return {DType::kF32,
            asked + "only fused_moe and tiled_dense have it, and neither is applied: " + moe + "; " + dense};
  const Bf16Unit most = facts.bf16 == Bf16Request::kPairs ? Bf16Unit::kPairs : Bf16Unit::kTiles;
  const Bf16Unit unit = std::min(facts.unit, most);
  const std::string tiles = unit == Bf16Unit::kTiles ? " in tiles (AMX): " : ": ";
  const std::string how = facts.why_no_bf16.empty() ? "compute dtype = bf16" + tiles
                                                    : "bf16 emulation, slowly (" + facts.why_no_bf16 + "): ";
  if (!moe.empty()) return {DType::kBF16, how + "dense layers; fused_moe is not applied: " + moe, unit};
  if (!dense.empty())
    return {DType::kBF16, how + "the experts' products; tiled_dense is not applied: " + dense, unit};
  return {DType::kBF16, how + "the products of experts and dense layers", unit};
}

}  // namespace moeloom
