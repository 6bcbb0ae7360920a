#include "moeloom/plan/decide/compute_dtype.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

const std::string kNoCpu = "this CPU has no AVX512_BF16 instructions";
const std::string kLoop = "GMM request 0";
const std::string kBlas = "fused ops are off";

TEST(ComputeDtype, IsBf16OnlyWhereItWasAskedForAndCanRun) {
  using enum DType;
  struct Case {
    DtypeFacts facts;
    DType type;
    std::string reason;
  };
  const std::string asked = "bf16 was asked for; ";
  const std::string neither = asked + "only fused_moe and tiled_dense have it, and neither is applied: ";
  const std::string all = "the products of experts and dense layers";
  const std::string slowly = "bf16 emulation, slowly (" + kNoCpu + "): ";
  const std::vector<Case> cases = {
      {{kF32, false, "", "", ""}, kF32, "compute dtype = fp32"},
      {{kF32, true, kNoCpu, kLoop, kBlas}, kF32, "compute dtype = fp32"},
      {{kBF16, false, "", "", ""}, kBF16, "compute dtype = bf16: " + all},
      {{kBF16, true, "", "", ""}, kBF16, "compute dtype = bf16: " + all},
      {{kBF16, false, kNoCpu, "", ""}, kF32, asked + kNoCpu},
      {{kBF16, false, kNoCpu, kLoop, kBlas}, kF32, asked + kNoCpu},
      {{kBF16, true, kNoCpu, "", ""}, kBF16, slowly + all},
      {{kBF16, false, "", kLoop, ""},
       kBF16,
       "compute dtype = bf16: dense layers; fused_moe is not applied: " + kLoop},
      {{kBF16, false, "", "", kBlas},
       kBF16,
       "compute dtype = bf16: the experts' products; tiled_dense is not applied: " + kBlas},
      {{kBF16, false, "", kLoop, kBlas}, kF32, neither + kLoop + "; " + kBlas},
      {{kBF16, true, kNoCpu, kLoop, kBlas}, kF32, neither + kLoop + "; " + kBlas}};
  for (const Case& c : cases) {
    const ComputeDtype decided = decide_dtype(c.facts);
    EXPECT_EQ(decided.type, c.type) << c.reason;
    EXPECT_EQ(decided.reason, c.reason);
  }
}

TEST(ComputeDtype, IsSpeltAsTheOption) {
  EXPECT_EQ(dtype_text(DType::kF32), "fp32");
  EXPECT_EQ(dtype_text(DType::kBF16), "bf16");
}

}  // namespace
}  // namespace moeloom
