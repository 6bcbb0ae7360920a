#include "plan/decide/compute_dtype.hpp"

#include <vector>

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
    Bf16Unit unit = Bf16Unit::kPairs;
  };
  const std::string asked = "bf16 was asked for; ";
  const std::string neither = asked + "only fused_moe and tiled_dense have it, and neither is applied: ";
  const std::string all = "the products of experts and dense layers";
  const std::string slowly = "bf16 emulation, slowly (" + kNoCpu + "): ";
  const auto facts = [](DType asked, Bf16Request bf16, std::string cpu, std::string moe, std::string dense,
                        Bf16Unit unit = Bf16Unit::kPairs) {
    return DtypeFacts{asked, bf16, unit, std::move(cpu), std::move(moe), std::move(dense)};
  };
  const std::vector<Case> cases = {
      {facts(kF32, Bf16Request::kBest, "", "", ""), kF32, "compute dtype = fp32"},
      {facts(kF32, Bf16Request::kEmulate, kNoCpu, kLoop, kBlas), kF32, "compute dtype = fp32"},
      {facts(kBF16, Bf16Request::kBest, "", "", ""), kBF16, "compute dtype = bf16: " + all},
      {facts(kBF16, Bf16Request::kEmulate, "", "", ""), kBF16, "compute dtype = bf16: " + all},
      {facts(kBF16, Bf16Request::kBest, kNoCpu, "", ""), kF32, asked + kNoCpu},
      {facts(kBF16, Bf16Request::kPairs, kNoCpu, "", ""), kF32, asked + kNoCpu},
      {facts(kBF16, Bf16Request::kBest, kNoCpu, kLoop, kBlas), kF32, asked + kNoCpu},
      {facts(kBF16, Bf16Request::kEmulate, kNoCpu, "", "", Bf16Unit::kEmulated), kBF16, slowly + all,
       Bf16Unit::kEmulated},
      {facts(kBF16, Bf16Request::kBest, "", "", "", Bf16Unit::kTiles), kBF16,
       "compute dtype = bf16 in tiles (AMX): " + all, Bf16Unit::kTiles},
      {facts(kBF16, Bf16Request::kEmulate, "", "", "", Bf16Unit::kTiles), kBF16,
       "compute dtype = bf16 in tiles (AMX): " + all, Bf16Unit::kTiles},
      {facts(kBF16, Bf16Request::kPairs, "", "", "", Bf16Unit::kTiles), kBF16,
       "compute dtype = bf16: " + all},
      {facts(kBF16, Bf16Request::kBest, "", kLoop, ""), kBF16,
       "compute dtype = bf16: dense layers; fused_moe is not applied: " + kLoop},
      {facts(kBF16, Bf16Request::kBest, "", "", kBlas, Bf16Unit::kTiles), kBF16,
       "compute dtype = bf16 in tiles (AMX): the experts' products; tiled_dense is not applied: " + kBlas,
       Bf16Unit::kTiles},
      {facts(kBF16, Bf16Request::kBest, "", kLoop, kBlas), kF32, neither + kLoop + "; " + kBlas},
      {facts(kBF16, Bf16Request::kEmulate, kNoCpu, kLoop, kBlas), kF32, neither + kLoop + "; " + kBlas}};
  for (const Case& c : cases) {
    const ComputeDtype decided = decide_dtype(c.facts);
    EXPECT_EQ(decided.type, c.type) << c.reason;
    EXPECT_EQ(decided.reason, c.reason);
    EXPECT_TRUE(c.type == kF32 || decided.unit == c.unit) << c.reason;
  }
}

TEST(ComputeDtype, IsSpeltAsTheOption) {
  EXPECT_EQ(dtype_text(DType::kF32), "fp32");
  EXPECT_EQ(dtype_text(DType::kBF16), "bf16");
}

}  // namespace
}  // namespace moeloom
