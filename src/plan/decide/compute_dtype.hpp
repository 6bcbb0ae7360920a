// Which numbers the products of experts and dense layers are computed in: what was asked for, and what this
// run can do of it.
#pragma once

#include "moeloom/kernels/bf16_unit.hpp"
#include "moeloom/tensor/dtype.hpp"

#include <string>
#include <string_view>

namespace moeloom {

/// "fp32", "bf16": as the program, its log and checkpoints spell it.
std::string_view dtype_text(DType type);

struct DtypeFacts {
  DType asked = DType::kF32;
  Bf16Request bf16 = Bf16Request::kBest;
  Bf16Unit unit = Bf16Unit::kPairs;  // the slowest of any rank
  std::string why_no_bf16;           // of any rank; empty: every CPU has the instructions
  // The reasons of the kernels that have it; empty: it is applied.
  std::string why_no_fused_moe;
  std::string why_no_tiled_dense;
};

struct ComputeDtype {
  DType type = DType::kF32;
  std::string reason;
  Bf16Unit unit = Bf16Unit::kEmulated;  // of bf16: one for all ranks, whose bits must not differ
};

/// Pure. bf16 only if it was asked for, a kernel that has it is applied, and the CPUs have its instructions
/// or are asked to do without; else fp32, with the reason. What it says of bf16 says of which products.
ComputeDtype decide_dtype(const DtypeFacts& facts);

}  // namespace moeloom
