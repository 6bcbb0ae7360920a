// The kernels that benchmarks put beside each other, by their name on the command line.
#pragma once

#include "moeloom/kernels/registry.hpp"

#include <stdexcept>
#include <string>

#include "support/dtype.hpp"

namespace moeloom::bench {

/// Upstream's trap: each call transposes and copies the weights of every resident expert.
inline PackedWeights& copied(const GroupedWeights& weights) {
  static PackedWeights copy;  // its memory is kept, as an allocator with a cache would
  copy.pack(weights, DType::kF32);
  return copy;
}

/// Of a layer's experts: gmm, loop, gmm-packed or gmm-copy.
inline KernelTable layer_kernels(const std::string& path, DType dtype) {
  KernelTable table;
  table.swiglu = fused_swiglu();
  if (path == "loop") return table;
  table.grouped_matmul = packed_kernel(path == "gmm-copy" ? DType::kF32 : dtype);
  table.grouped_matmul.uses_packed = path == "gmm-packed";
  if (path == "gmm" || path == "gmm-packed") return table;
  if (path != "gmm-copy")
    throw std::invalid_argument("unknown path " + path + "; valid: gmm, loop, gmm-packed, gmm-copy");
  table.grouped_matmul.forward = [](const GroupedWeights& w, const PackedWeights&, ConstRows x,
                                    const GroupedRows& rows, MatrixView y) {
    packed_grouped_matmul().forward(w, copied(w), x, rows, y);
  };
  table.grouped_matmul.input_grad = [](const GroupedWeights& w, const PackedWeights&, ConstRows dy,
                                       const GroupedRows& rows, MatrixView dx) {
    packed_grouped_matmul().input_grad(w, copied(w), dy, rows, dx);
  };
  return table;
}

/// Of a whole model: fused everywhere; `grouped`: dense layers and experts on our tiles, else on OpenBLAS.
inline KernelTable model_kernels(bool grouped, DType dtype) {
  KernelTable table{.rmsnorm = fused_rmsnorm(), .rope = fused_rope(), .swiglu = fused_swiglu()};
  if (!grouped) return table;
  table.grouped_matmul = packed_kernel(dtype);
  table.dense = dtype == DType::kBF16 ? tiled_bf16_dense() : tiled_dense();
  table.grouped_matmul.uses_packed = false;  // one micro-batch a step
  return table;
}

}  // namespace moeloom::bench
