// y = x w^T for the few rows of decoding: each line of the master is read once, as memory delivers it, and
// multiplied by every row of x while it is in registers. A master in bf16 or F16 is widened there: half the
// reading and the same bits. Sums lie across a vector's lanes, so their bits differ from the tiles'.
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/kernels/dense.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tile/packed_element.hpp"

namespace moeloom {
namespace {

/// Above it the tiles are faster.
constexpr std::size_t kMostRows = 4;
/// Lines of w at a time: as many streams as the prefetchers of a core follow with ease.
constexpr std::size_t kLines = 4;
/// Lines of w of one task.
constexpr Index kTaskLines = 64;

float sum_of(Lanes lanes) {
  float sum = 0;
  for (Index i = 0; i < kLanes; ++i) sum += lanes[i];
  return sum;
}

Lanes load_wide(const float* source) {
  return load(source);
}
Lanes load_wide(const std::uint16_t* source) {
  typedef std::uint16_t HalfLanes __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));
  typedef std::uint32_t Words __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));
  HalfLanes halves;
  std::memcpy(&halves, source, sizeof halves);
  return std::bit_cast<Lanes>(__builtin_convertvector(halves, Words) << 16);
}
Lanes load_wide(const F16* source) {
  return packed::widened_lanes(source);
}

/// The next numbers of a line; zeros behind its end.
template <typename Number>
Lanes load_some(const Number* source, Index count) {
  if (count >= kLanes) return load_wide(source);
  std::array<Number, at(kLanes)> numbers{};
  std::copy_n(source, count, numbers.data());
  return load_wide(numbers.data());
}

/// y [Rows, Lines] (+)= x [Rows, in] w^T, w [Lines, in] in fp32, bf16 or F16.
template <std::size_t Rows, std::size_t Lines, typename Number>
void multiply_lines(ConstMatrixView x, BasicView<const Number> w, MatrixView y, Write mode) {
  std::array<std::array<Lanes, Lines>, Rows> sums{};
  for (Index k = 0; k < w.cols; k += kLanes) {
    const Index count = w.cols - k;
    std::array<Lanes, Lines> weights;
    for (std::size_t j = 0; j < Lines; ++j) {
      const Number* const line = w.row(static_cast<Index>(j)) + k;
      // Lines of halves are streams too short for the prefetchers: the next ones are asked for. A fifth
      // faster; those in fp32 became slower.
      if constexpr (sizeof(Number) == 2) __builtin_prefetch(line + static_cast<Index>(Lines) * w.stride);
      weights[j] = load_some(line, count);
    }
    for (std::size_t i = 0; i < Rows; ++i) {
      const Lanes input = load_some(x.row(static_cast<Index>(i)) + k, count);
      for (std::size_t j = 0; j < Lines; ++j) sums[i][j] = multiply_add(input, weights[j], sums[i][j]);
    }
  }
  for (std::size_t i = 0; i < Rows; ++i)
    for (std::size_t j = 0; j < Lines; ++j) {
      float& result = y(static_cast<Index>(i), static_cast<Index>(j));
      result = (mode == Write::kAdd ? result : 0.0f) + sum_of(sums[i][j]);
    }
}

template <std::size_t Rows, typename Number>
void multiply_task(ConstMatrixView x, BasicView<const Number> w, MatrixView y, Write mode) {
  Index line = 0;
  for (; line + static_cast<Index>(kLines) <= w.rows; line += kLines)
    multiply_lines<Rows, kLines>(x, w.rows_from(line, kLines), y.cols_from(line, kLines), mode);
  for (; line < w.rows; ++line) multiply_lines<Rows, 1>(x, w.rows_from(line, 1), y.cols_from(line, 1), mode);
}

/// One product of one to kMostRows rows.
struct Product {
  ConstMatrixView x;
  ConstRows w;
  MatrixView y;

  Index tasks() const { return ceil_div(w.rows(), kTaskLines); }
  void run(Index task, Write mode) const {
    const Index first = task * kTaskLines, lines = std::min(kTaskLines, w.rows() - first);
    w.rows_from(first, lines).visit([&](auto weights) {
      using Number = std::remove_const_t<std::remove_pointer_t<decltype(weights.data)>>;
      constexpr std::array kByRows = {multiply_task<1, Number>, multiply_task<2, Number>,
                                      multiply_task<3, Number>, multiply_task<4, Number>};
      static_assert(kByRows.size() == kMostRows);
      kByRows[at(x.rows - 1)](x, weights, y.cols_from(first, lines), mode);
    });
  }
};

bool are_few(Index rows) {
  return rows <= static_cast<Index>(kMostRows);
}

void dense_forward(ConstRows given, ConstRows master, MatrixView y, Write mode) {
  if (!are_few(given.rows())) return tiled_dense().forward(given, master, y, mode);
  const ConstMatrixView x = given.fp32();
  require(x.cols == master.cols() && y.rows == x.rows && y.cols == master.rows(),
          "streamed product: y must be x w^T");
  if (x.rows == 0) return;
  const Product product{x, master, y};
  parallel_for(product.tasks(), [&](Index task) { product.run(task, mode); });
}

void grouped_forward(const GroupedWeights& w, const PackedWeights& packed, ConstRows given,
                     const GroupedRows& rows, MatrixView y) {
  Index most = 0;
  for (Index g = 0; g < rows.groups(); ++g) most = std::max(most, rows.of_group(g));
  if (!are_few(most)) return packed_grouped_matmul().forward(w, packed, given, rows, y);
  w.check();
  rows.check(given, y);
  const ConstMatrixView x = given.fp32();
  require(w.groups == rows.groups() && x.cols == w.in() && y.cols == w.out(),
          "grouped matmul needs x [R, in], a weight [out, in] for each group of rows and y [R, out]");
  std::vector<Product> products;
  std::vector<Index> ends;  // of their tasks
  for (Index g = 0, first = 0; g < rows.groups(); first += rows.of_group(g), ++g) {
    const Index count = rows.of_group(g);
    if (count == 0) continue;
    products.push_back({x.rows_from(first, count), w.group(g), y.rows_from(first, count)});
    ends.push_back((ends.empty() ? 0 : ends.back()) + products.back().tasks());
  }
  parallel_for(ends.empty() ? 0 : ends.back(), [&](Index task) {
    const std::size_t which = static_cast<std::size_t>(std::ranges::upper_bound(ends, task) - ends.begin());
    products[which].run(task - (which == 0 ? 0 : ends[which - 1]), Write::kReplace);
  });
}

}  // namespace

DenseKernel streamed_dense() {
  DenseKernel kernel = tiled_dense();
  kernel.forward = dense_forward;
  return kernel;
}

GroupedMatmulKernel streamed_grouped_matmul() {
  GroupedMatmulKernel kernel = packed_grouped_matmul();
  kernel.uses_packed = false;
  kernel.rows_alone = false;  // few rows are added up in another order than many
  kernel.forward = grouped_forward;
  return kernel;
}

}  // namespace moeloom
