// Which optimizer trains, and what it keeps of each weight.
#pragma once

#include <array>
#include <string_view>

namespace moeloom {

/// AdamW: Loshchilov and Hutter 2019. Muon: Jordan et al. 2024, momentum of a matrix with singular values of
/// about 1, scaled so that AdamW's learning rate and decay serve.
enum class OptimizerKind {
  kAdamW,
  kMuon,  // of matrices; embeddings, head, routers, norms and biases have AdamW
};

/// "adamw", "muon".
constexpr std::string_view name_of(OptimizerKind kind) {
  constexpr std::array<std::string_view, 2> names = {"adamw", "muon"};
  return names[static_cast<std::size_t>(kind)];
}

/// What AdamW's two moments of each weight are kept in: 4, 2 or about 1 byte each. kInt8: codes with a scale
/// for each block of 256, after Dettmers et al. 2022; it and kBf16 round at random, the same on every mesh.
enum class MomentFormat { kFp32, kBf16, kInt8 };

inline constexpr std::array kMomentFormats = {MomentFormat::kFp32, MomentFormat::kBf16, MomentFormat::kInt8};

/// "fp32", "bf16", "int8".
constexpr std::string_view name_of(MomentFormat format) {
  constexpr std::array<std::string_view, 3> names = {"fp32", "bf16", "int8"};
  return names[static_cast<std::size_t>(format)];
}

}  // namespace moeloom
