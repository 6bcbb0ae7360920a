// Which optimizer trains, and what it keeps of each weight.
#pragma once

#include <array>
#include <string_view>

namespace moeloom {

enum class OptimizerKind {
  kAdamW,
  kMuon,  // of matrices; embeddings, head, routers, norms and biases have AdamW
};

/// "adamw", "muon".
constexpr std::string_view name_of(OptimizerKind kind) {
  constexpr std::array<std::string_view, 2> names = {"adamw", "muon"};
  return names[static_cast<std::size_t>(kind)];
}

/// Of AdamW's two moments (train/moments.hpp).
enum class MomentFormat { kFp32, kBf16, kInt8 };

inline constexpr std::array kMomentFormats = {MomentFormat::kFp32, MomentFormat::kBf16, MomentFormat::kInt8};

/// "fp32", "bf16", "int8".
constexpr std::string_view name_of(MomentFormat format) {
  constexpr std::array<std::string_view, 3> names = {"fp32", "bf16", "int8"};
  return names[static_cast<std::size_t>(format)];
}

}  // namespace moeloom
