#include "compute_dtype.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

const std::string kNoCpu = "this CPU has no AVX512_BF16 instructions";
const std::string kLoop = "MOELOOM_GMM_PATCH is 0";

TEST(ComputeDtype, IsBf16OnlyWhereItWasAskedForAndCanRun) {
  using enum DType;
  struct Case {
    DtypeFacts facts;
    DType type;
    std::string reason;
  };
  const std::vector<Case> cases = {
      {{kF32, false, "", ""}, kF32, "--dtype fp32"},
      {{kF32, true, kNoCpu, kLoop}, kF32, "--dtype fp32"},
      {{kBF16, false, "", ""}, kBF16, "--dtype bf16, the experts' products"},
      {{kBF16, true, "", ""}, kBF16, "--dtype bf16, the experts' products"},
      {{kBF16, false, kNoCpu, ""}, kF32, "bf16 was asked for; " + kNoCpu},
      {{kBF16, false, kNoCpu, kLoop}, kF32, "bf16 was asked for; " + kNoCpu},
      {{kBF16, true, kNoCpu, ""}, kBF16, "MOELOOM_BF16=emulate, slowly: " + kNoCpu},
      {{kBF16, false, "", kLoop},
       kF32,
       "bf16 was asked for; only fused_moe has it, and that is not applied: " + kLoop},
      {{kBF16, true, kNoCpu, kLoop},
       kF32,
       "bf16 was asked for; only fused_moe has it, and that is not applied: " + kLoop}};
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
