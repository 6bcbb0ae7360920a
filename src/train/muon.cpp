#include "train/muon.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace moeloom {
namespace {

constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
constexpr double kLeastNorm = 1e-7;

/// In row order: the bits depend on the matrix alone.
double frobenius_norm(ConstMatrixView x) {
  double sum = 0;
  for (Index i = 0; i < x.rows; ++i) {
    double of_row = 0;
    for (Index j = 0; j < x.cols; ++j) of_row += static_cast<double>(x.row(i)[j]) * x.row(i)[j];
    sum += of_row;
  }
  return std::sqrt(sum);
}

void normalise(MatrixView x) {
  const auto inverse = static_cast<float>(1 / (frobenius_norm(x) + kLeastNorm));
  for (float& value : x.flat()) value *= inverse;
}

/// to = a * first + b * second, in parallel.
void combine(float a, ConstMatrixView first, float b, ConstMatrixView second, MatrixView to) {
  constexpr Index kElements = 1 << 14;
  parallel_blocks(to.size(), kElements, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) to.data[i] = a * first.data[i] + b * second.data[i];
  });
}

/// M and U of `count` elements.
template <typename Number>
void accumulate(float scale, const Number* grad, float* momentum, float* update, std::size_t count) {
  constexpr float mu = kMuonMomentum;
  for (std::size_t i = 0; i < count; ++i) {
    const float g = scale * as_float(grad[i]);
    momentum[i] = mu * momentum[i] + g;
    update[i] = g + mu * momentum[i];
  }
}

template <typename Number>
void take_momentum(double grad_scale, std::span<const Number> grad, MomentView momentum,
                   std::uint64_t rounding, std::span<float> update) {
  require(momentum.size() == std::ssize(grad) && update.size() == grad.size(),
          "muon_momentum needs stretches of one length");
  const auto scale = static_cast<float>(grad_scale);
  if (momentum.format() == MomentFormat::kFp32)
    return accumulate(scale, grad.data(), momentum.words().data(), update.data(), grad.size());
  constexpr auto kPiece = at(MomentView::kPiece);
  std::array<float, kPiece> decoded;
  std::array<std::uint16_t, kPiece> bits;
  const RandomBits random(rounding);
  for (std::size_t begin = 0; begin < grad.size(); begin += kPiece) {
    const std::size_t count = std::min(kPiece, grad.size() - begin);
    const MomentView here = momentum.part(static_cast<Index>(begin), static_cast<Index>(count));
    here.decode(decoded);
    accumulate(scale, grad.data() + begin, decoded.data(), update.data() + begin, count);
    for (std::size_t i = 0; i < count; ++i)
      bits[i] = static_cast<std::uint16_t>(random.of(static_cast<Index>(begin + i)));
    here.encode(std::span(decoded).first(count), bits);
  }
}

}  // namespace

void muon_momentum(double grad_scale, std::span<const float> grad, MomentView momentum,
                   std::uint64_t rounding, std::span<float> update) {
  take_momentum(grad_scale, grad, momentum, rounding, update);
}
void muon_momentum(double grad_scale, std::span<const std::uint16_t> grad, MomentView momentum,
                   std::uint64_t rounding, std::span<float> update) {
  take_momentum(grad_scale, grad, momentum, rounding, update);
}

double muon_scale(Index out, Index in) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(out, in)));
}

void orthogonalise(Index groups, Index iterations, MatrixView x, OrthogonaliseWorkspace& workspace) {
  if (groups == 0 || x.size() == 0) return;
  const Index m = x.rows / groups;
  require(x.rows == groups * m && m <= x.cols && x.contiguous(),
          "matrices to orthogonalise are stacked and no taller than wide");
  parallel_for(groups, [&](Index group) { normalise(x.rows_from(group * m, m)); });
  const GroupedMatmulKernel kernel = packed_grouped_matmul();
  const PackedWeights no_faces;
  workspace.rows.assign(at(groups), m);
  const GroupedRows rows{workspace.rows, 1};
  workspace.gram.reshape_uninitialised(x.rows, m);
  workspace.factor.reshape_uninitialised(x.rows, m);
  workspace.product.reshape_uninitialised(x.rows, x.cols);
  for (Index iteration = 0; iteration < iterations; ++iteration) {
    kernel.forward({x, groups}, no_faces, x, rows, workspace.gram);
    kernel.forward({workspace.gram, groups}, no_faces, workspace.gram, rows, workspace.factor);  // symmetric
    combine(kB, workspace.gram, kC, workspace.factor, workspace.factor);
    kernel.input_grad({x, groups}, no_faces, workspace.factor, rows, workspace.product);
    combine(kA, x, 1, workspace.product, x);
  }
}

}  // namespace moeloom
