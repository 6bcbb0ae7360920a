// --dtype of the benchmarks that have one: the kernel it means, and what to say without bf16.
#pragma once

#include "moeloom/kernels/grouped_matmul.hpp"

#include <cstdio>
#include <stdexcept>
#include <string>

#include "support/json_file.hpp"

namespace moeloom::bench {

inline DType dtype_from_option(const std::string& text) {
  if (text == "fp32") return DType::kF32;
  if (text == "bf16") return DType::kBF16;
  throw std::runtime_error("unknown --dtype " + text + "; known: fp32, bf16");
}

inline GroupedMatmulKernel packed_kernel(DType type) {
  return type == DType::kBF16 ? packed_bf16_grouped_matmul() : packed_grouped_matmul();
}

/// Emulated bf16 would say nothing about a machine that has it: no rows.
inline void report_no_bf16(const std::string& json) {
  std::printf("no rows: %s\n", std::string(why_no_bf16()).c_str());
  write_json(json, nlohmann::ordered_json::array());
}

}  // namespace moeloom::bench
