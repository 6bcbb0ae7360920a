// Muon for matrices (Jordan et al. 2024): the update is the momentum with its singular values made about 1.
//
//   M <- mu M + G,  U = G + mu M (Nesterov),  O = orthogonalised U,
//   W <- (1 - lr decay) W - lr 0.2 sqrt(max(out, in)) O
//
// The factor of O is that of Liu et al. 2025 ("Muon is scalable for LLM training", section 2.2): an update
// then has the root mean square of AdamW's, whose learning rate and decay serve both.
#pragma once

#include "moeloom/kernels/grouped_matmul.hpp"
#include "train/moments.hpp"

namespace moeloom {

inline constexpr float kMuonMomentum = 0.95f;  // mu
inline constexpr Index kMuonIterations = 5;    // Newton-Schulz

/// M and U of a stretch: momentum [n] in place, update [n] written, from a gradient in floats or in bf16.
/// rounding: as of AdamWUpdate.
void muon_momentum(double grad_scale, std::span<const float> grad, MomentView momentum,
                   std::uint64_t rounding, std::span<float> update);
void muon_momentum(double grad_scale, std::span<const std::uint16_t> grad, MomentView momentum,
                   std::uint64_t rounding, std::span<float> update);

/// 0.2 sqrt(max(out, in)).
double muon_scale(Index out, Index in);

/// Buffers of orthogonalise(), kept from call to call.
struct OrthogonaliseWorkspace {
  Matrix gram;     // X X^T [groups * m, m]
  Matrix factor;   // b X X^T + c (X X^T)^2
  Matrix product;  // [groups * m, n]
  std::vector<Index> rows;

  /// rows: of all matrices.
  static double bytes_of(Index rows, Index m, Index n) { return rows_bytes(rows, {m, m, n}); }
};

/// x [groups * m, n], a matrix [m, n] a group with m <= n, in place: each divided by its Frobenius norm, and
/// then `iterations` times X <- a X + (b A + c A^2) X with A = X X^T and (a, b, c) = (3.4445, -4.7750,
/// 2.0315), the quintic of Jordan et al. Every product is one grouped matmul over all groups, in fp32; bits
/// do not depend on the other groups, nor on threads. A matrix of zeros stays one.
void orthogonalise(Index groups, Index iterations, MatrixView x, OrthogonaliseWorkspace& workspace);

}  // namespace moeloom
