// The tile of CPUs that multiply whole tiles of bf16 (AMX): up to 32 rows of the left side times one panel.
//
// A panel's words are those of every bf16 product. The left side lies as its rows do, kMatrixDepth words at
// a time: strip [blocks of depth, rows padded to kMatrixRows, kMatrixDepth], zeros behind the end of a row.
#pragma once

#include "moeloom/tensor/rows.hpp"

#include <algorithm>

#include "tile/packed_tile.hpp"
#include "tile/pair_tile.hpp"

namespace moeloom::packed {

inline constexpr Index kMatrixRows = 16;
inline constexpr Index kMatrixDepth = 16;  // words

constexpr Index padded_to(Index count, Index multiple) {
  return ceil_div(count, multiple) * multiple;
}

/// A thread's tile registers, ready until this is destroyed: then they are clear, and no switch between
/// threads saves them.
class MatrixRegisters {
 public:
  MatrixRegisters();
  ~MatrixRegisters();
  MatrixRegisters(const MatrixRegisters&) = delete;
  MatrixRegisters& operator=(const MatrixRegisters&) = delete;
};

/// Whether there are any here; else the same sums are made of other instructions, slowly.
bool has_matrix_registers();

/// multiply_tile for bf16 and 1 <= rows <= 2 kMatrixRows, while MatrixRegisters live. Within kMatrixDepth
/// words the products of the lower numbers are one chain of sums and those of the upper ones another; both
/// together are added to the sum so far (Intel's manual, TDPBF16PS).
void multiply_matrix_tile(Index rows, const TileArguments& t);

/// For the peak: so many products of registers that hold zeros, four sums in turn; nothing without registers.
void multiply_matrix_registers(int products);

/// Bf16, multiplied so.
struct Bf16Matrix : Bf16 {};

/// What the tiles of other elements need no registers for.
struct NoRegisters {
  NoRegisters() {}
};

template <typename Element>
inline constexpr bool kOfMatrices = std::is_same_v<Element, Bf16Matrix>;
/// Rows of the left side that a tile takes at most.
template <typename Element>
inline constexpr Index kStripRows = kOfMatrices<Element> ? 2 * kMatrixRows : kTileRows;
/// What a thread holds while it calls multiply_strip().
template <typename Element>
using Registers = std::conditional_t<kOfMatrices<Element>, MatrixRegisters, NoRegisters>;

/// The element's tile for 1 <= rows <= kStripRows.
template <typename Element>
void multiply_strip(Index rows, const TileArguments& t) {
  if constexpr (kOfMatrices<Element>)
    multiply_matrix_tile(rows, t);
  else if (std::is_same_v<Element, Bf16> && multiplies_pairs())
    pair_tile(rows, t.cols)(t);
  else
    tile_function<Element>(rows, t.cols)(t);
}

/// Eight words of a row from word `k` on, with zeros behind its end.
template <typename Number>
Eight words_until_end(const Number* row, Index numbers, Index k) {
  const Index first = k * Bf16::kNumbers;
  if (first + 2 * kTransposed <= numbers) return Bf16::words_along(row + first);
  std::array<Number, 2 * kTransposed> rest{};
  if (first < numbers) std::copy_n(row + first, numbers - first, rest.data());
  return Bf16::words_along(rest.data());
}

/// x [rows, numbers], rows <= kStripRows -> strip.
template <typename Number>
void pack_matrix_strip(BasicView<const Number> x, float* strip) {
  const Index block = padded_to(x.rows, kMatrixRows) * kMatrixDepth;
  const Index depth = padded_to(ceil_div(x.cols, Bf16::kNumbers), kMatrixDepth);
  for (Index i = 0; i < x.rows; ++i) {
    float* to = strip + i * kMatrixDepth;
    for (Index k = 0; k < depth; k += kMatrixDepth, to += block)
      for (Index word = 0; word < kMatrixDepth; word += kTransposed)
        store8(words_until_end(x.row(i), x.cols, k + word), to + word);
  }
}

}  // namespace moeloom::packed
