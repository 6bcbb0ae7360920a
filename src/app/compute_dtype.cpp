#include "compute_dtype.hpp"

namespace moeloom {

std::string_view dtype_text(DType type) {
  return type == DType::kBF16 ? "bf16" : "fp32";
}

ComputeDtype decide_dtype(const DtypeFacts& facts) {
  const std::string asked = "bf16 was asked for; ";
  if (facts.asked != DType::kBF16) return {DType::kF32, "--dtype fp32"};
  if (!facts.emulate && !facts.why_no_bf16.empty()) return {DType::kF32, asked + facts.why_no_bf16};
  if (!facts.why_no_gmm.empty())
    return {DType::kF32, asked + "only fused_moe has it, and that is not applied: " + facts.why_no_gmm};
  if (facts.why_no_bf16.empty()) return {DType::kBF16, "--dtype bf16, the experts' products"};
  return {DType::kBF16, "MOELOOM_BF16=emulate, slowly: " + facts.why_no_bf16};
}

}  // namespace moeloom
