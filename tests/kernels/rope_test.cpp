#include "moeloom/kernels/rope.hpp"

#include "moeloom/base/errors.hpp"

#include "elementwise_testing.hpp"
#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

struct Named {
  const char* name;
  RopeKernel kernel;
};
const Named kKernels[] = {{"reference", reference_rope()}, {"fused", fused_rope()}};

constexpr double kTheta = 1e4;
constexpr Index kPositions = 50;

struct Size {
  Index rows, heads, head_dim, rotary_dim;
};
const Size kSizes[] = {{0, 2, 16, 16}, {1, 1, 2, 2},   {1, 1, 16, 16}, {5, 3, 20, 20},   {4, 2, 36, 36},
                       {4, 2, 20, 6},  {3, 2, 36, 34}, {3, 2, 8, 0},   {300, 4, 64, 64}, {3, 0, 16, 16}};

std::vector<std::int32_t> positions_for(Index rows) {
  std::vector<std::int32_t> ids;
  for (Index t = 0; t < rows; ++t) ids.push_back(static_cast<std::int32_t>((t * 7 + 3) % kPositions));
  return ids;
}

/// The formula, element by element in double.
std::vector<double> turned(std::vector<double> x, Size size, const std::vector<std::int32_t>& ids,
                           double sign) {
  const Index half = size.rotary_dim / 2;
  for (Index t = 0; t < size.rows; ++t)
    for (Index h = 0; h < size.heads; ++h)
      for (Index i = 0; i < half; ++i) {
        const double angle =
            sign * ids[static_cast<std::size_t>(t)] *
            std::pow(kTheta, -2.0 * static_cast<double>(i) / static_cast<double>(size.rotary_dim));
        double& first = x[static_cast<std::size_t>((t * size.heads + h) * size.head_dim + i)];
        double& second = x[static_cast<std::size_t>((t * size.heads + h) * size.head_dim + half + i)];
        const double a = first, b = second;
        first = a * std::cos(angle) - b * std::sin(angle);
        second = b * std::cos(angle) + a * std::sin(angle);
      }
  return x;
}

// cos and sin rounded once, two products and a sum: 3e-7 is some three units in the last place.
TEST(Rope, TurnsPairsOfHalvesForwardAndBackAtAnySizeAndStride) {
  for (const auto& [name, kernel] : kKernels)
    for (const Size size : kSizes) {
      const RopeTable table = make_rope_table(kPositions, size.rotary_dim, kTheta);
      const auto ids = positions_for(size.rows);
      GappedMatrix x(size.rows, size.heads * size.head_dim, 1), dx(size.rows, size.heads * size.head_dim, 2);
      const auto expected = turned(doubles_of(x), size, ids, 1),
                 d_expected = turned(doubles_of(dx), size, ids, -1);
      kernel.forward(x, size.head_dim, ids, table);
      kernel.backward(dx, size.head_dim, ids, table);
      EXPECT_LE(worst_error(doubles_of(x), expected), 3e-7) << name << ' ' << size.head_dim;
      EXPECT_LE(worst_error(doubles_of(dx), d_expected), 3e-7) << name << ' ' << size.head_dim;
      EXPECT_TRUE(x.gap_is_untouched() && dx.gap_is_untouched()) << name;
    }
}

TEST(Rope, LeavesWhatIsBeyondRotaryDimBitForBit) {
  const Size size = {6, 3, 20, 6};
  const RopeTable table = make_rope_table(kPositions, size.rotary_dim, kTheta);
  for (const auto& [name, kernel] : kKernels) {
    const Matrix before = random_matrix(size.rows, 60, 3);
    Matrix x = Matrix::copy_of(before);
    kernel.forward(x, size.head_dim, positions_for(size.rows), table);
    for (Index h = 0; h < size.heads; ++h) {
      EXPECT_EQ(bits_of(x.view().cols_from(h * 20 + 6, 14)),
                bits_of(before.view().cols_from(h * 20 + 6, 14)));
      EXPECT_NE(bits_of(x.view().cols_from(h * 20, 6)), bits_of(before.view().cols_from(h * 20, 6)));
    }
  }
}

TEST(Rope, BackwardAgreesWithCentralDifferences) {
  const Size size = {3, 2, 20, 12};
  const RopeTable table = make_rope_table(kPositions, size.rotary_dim, kTheta);
  const auto ids = positions_for(size.rows);
  const Matrix x = random_matrix(3, 40, 4), upstream = random_matrix(3, 40, 5);
  auto values = doubles_of(x);
  const auto slopes = central_differences(values, [&] {
    const auto y = turned(values, size, ids, 1), u = doubles_of(upstream);
    double loss = 0;
    for (std::size_t i = 0; i < y.size(); ++i) loss += y[i] * u[i];
    return loss;
  });
  for (const auto& [name, kernel] : kKernels) {
    Matrix dx = Matrix::copy_of(upstream);
    kernel.backward(dx, size.head_dim, ids, table);
    EXPECT_LE(worst_error(doubles_of(dx), slopes), 1e-6) << name;
  }
}

TEST(Rope, GivesTheSameBitsOnAnyThreads) {
  const RopeTable table = make_rope_table(kPositions, 64, kTheta);
  const auto run = [&] {
    Matrix x = random_matrix(700, 256, 6);
    fused_rope().forward(x, 64, positions_for(700), table);
    return x;
  };
  EXPECT_EQ(bits_of(on_threads(1, run)), bits_of(on_threads(3, run)));
}

TEST(RopeTable, IsExactAtFarPositions) {
  const RopeTable table = make_rope_table(100001, 8, 1e6);
  for (Index i = 0; i < 4; ++i) {
    const double angle = 100000.0 * std::pow(1e6, -2.0 * static_cast<double>(i) / 8.0);
    EXPECT_EQ(table.cosine.row(100000)[i], static_cast<float>(std::cos(angle)));
    EXPECT_EQ(table.sine.row(100000)[i], static_cast<float>(std::sin(angle)));
  }
  EXPECT_EQ(table.rotary_dim(), 8);
  EXPECT_EQ(make_rope_table(0, 8, 1e6).positions(), 0);
}

TEST(Rope, RefusesWhatDoesNotFit) {
  const RopeTable table = make_rope_table(4, 8, kTheta);
  Matrix x(2, 16);
  const auto ids = [](std::int32_t a, std::int32_t b) { return std::vector<std::int32_t>{a, b}; };
  EXPECT_THROW(make_rope_table(4, 7, kTheta), ShapeError);
  for (const auto& [name, kernel] : kKernels) {
    EXPECT_NO_THROW(kernel.forward(x, 8, ids(0, 3), table)) << name;
    EXPECT_THROW(kernel.forward(x, 8, ids(0, 4), table), ShapeError) << name;
    EXPECT_THROW(kernel.forward(x, 8, ids(-1, 0), table), ShapeError) << name;
    EXPECT_THROW(kernel.forward(x, 4, ids(0, 1), table), ShapeError) << name;
    EXPECT_THROW(kernel.forward(x, 12, ids(0, 1), table), ShapeError) << name;
    EXPECT_THROW(kernel.backward(x, 8, std::vector<std::int32_t>{0}, table), ShapeError) << name;
  }
}

/// [B, heads, S, d] as stored -> [B*S, heads*d] as a layer holds it.
Matrix tokens_of(const GoldenBlock& block, const std::string& name) {
  const auto shape = block.shape(name);
  const auto values = block.tensors.floats(name);
  Matrix m(shape[0] * shape[2], shape[1] * shape[3]);
  std::size_t next = 0;
  for (Index b = 0; b < shape[0]; ++b)
    for (Index h = 0; h < shape[1]; ++h)
      for (Index s = 0; s < shape[2]; ++s)
        for (Index i = 0; i < shape[3]; ++i) m.row(b * shape[2] + s)[h * shape[3] + i] = values[next++];
  return m;
}

TEST(Rope, GivesTheGoldenQueriesKeysAndGradients) {
  for (const auto& folder : golden_cases("blocks", of_class({"Qwen3RotaryEmbedding + apply_rotary_pos_emb"})))
    for (const auto& [name, kernel] : kKernels) {
      const GoldenBlock block(folder);
      const Index head_dim = block.config.integer("head_dim");
      const auto ids64 = block.tensors.integers("input.position_ids");
      const std::vector<std::int32_t> ids(ids64.begin(), ids64.end());
      const RopeTable table = make_rope_table(*std::max_element(ids.begin(), ids.end()) + 1, head_dim,
                                              block.config.number("rope_theta"));
      for (const std::string which : {"q", "k"}) {
        Matrix x = tokens_of(block, "input." + which),
               dx = tokens_of(block, "upstream_grad." + which + "_out");
        kernel.forward(x, head_dim, ids, table);
        kernel.backward(dx, head_dim, ids, table);
        const Matrix y = tokens_of(block, which + "_out"), grad = tokens_of(block, "grad.input." + which);
        EXPECT_LE(golden_error(x.view().flat(), y.view().flat(), kBlockFloor), 1e-5) << name << which;
        EXPECT_LE(golden_error(dx.view().flat(), grad.view().flat(), kBlockFloor), 2e-5) << name << which;
      }
    }
}

}  // namespace
}  // namespace moeloom
