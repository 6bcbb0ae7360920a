// A block of a master, kTileCols columns of a panel by kBlockNumbers of its depth, packed in either
// orientation.
#pragma once

#include "moeloom/tensor/rows.hpp"

#include <algorithm>

#include "tile/packed_tile.hpp"

namespace moeloom::packed {

/// Numbers of depth in a block: what fills a line of memory, and at least what is transposed at a time.
template <typename Element>
inline constexpr Index kBlockNumbers = std::max<Index>(kTileCols, kTransposed* Element::kNumbers);
/// Words of depth that it fills.
template <typename Element>
inline constexpr Index kBlockDepth = kBlockNumbers<Element> / Element::kNumbers;

/// How eight words reach a panel: past the caches, if nobody reads them soon.
struct Streamed {
  static void write(Eight words, float* to) { stream(words, to); }
};
struct Cached {
  static void write(Eight words, float* to) { store8(words, to); }
};

/// Of a master of Number: float, std::uint16_t for bf16, or F16.
template <typename Number>
using Master = BasicView<const Number>;

/// The depth goes down the master's rows: dx = dy w.
struct Down {
  static Index numbers(const auto& master) { return master.rows; }
  static Index cols(const auto& master) { return master.cols; }
  /// From one block of a panel to the next.
  static Index advance(const auto& master, Index numbers) { return numbers * master.stride; }
  template <typename Number>
  static const Number* block(Master<Number> master, Index panel, Index number) {
    return master.row(number) + panel * kTileCols;
  }
  static float number(const auto& master, Index number, Index col) { return as_float(master(number, col)); }

  template <typename Element, typename Store, typename Number>
  static void pack(const Number* block, Index stride, float* words) {
    for (Index i = 0; i < kBlockNumbers<Element>; i += Element::kNumbers, words += kTileCols)
      for (Index j = 0; j < kTileCols; j += kTransposed) {
        const Number* row = block + i * stride + j;
        Store::write(Element::words_down(row, row + stride), words + j);
      }
  }
};

/// The depth goes along them: y = x w^T.
struct Along {
  static Index numbers(const auto& master) { return master.cols; }
  static Index cols(const auto& master) { return master.rows; }
  static Index advance(const auto&, Index numbers) { return numbers; }
  template <typename Number>
  static const Number* block(Master<Number> master, Index panel, Index number) {
    return master.row(panel * kTileCols) + number;
  }
  static float number(const auto& master, Index number, Index col) { return as_float(master(col, number)); }

  template <typename Element, typename Store, typename Number>
  static void pack(const Number* block, Index stride, float* words) {
    // Both halves of eight rows' lines at once: rows a power of two apart share the ways of one set.
    for (Index i = 0; i < kTileCols; i += kTransposed)
      for (Index k = 0; k < kBlockDepth<Element>; k += kTransposed) {
        EightRows eight;
        for (Index row = 0; row < kTransposed; ++row)
          eight[row] = Element::words_along(block + (i + row) * stride + k * Element::kNumbers);
        transpose(eight);
        for (Index row = 0; row < kTransposed; ++row)
          Store::write(eight[row], words + (k + row) * kTileCols + i);
      }
  }
};

/// Block `number`, a number of depth, of a panel -> words; what the master lacks are zeros, down to the last
/// word that the depth has a place for.
template <typename Element, typename Side, typename Store, typename Number>
void pack_block(Master<Number> master, Index panel, Index number, float* words) {
  const Index numbers = std::min(kBlockNumbers<Element>, Side::numbers(master) - number);
  const Index first = panel * kTileCols;
  const Index cols = std::min<Index>(kTileCols, Side::cols(master) - first);
  if (numbers == kBlockNumbers<Element> && cols == kTileCols)
    return Side::template pack<Element, Store>(Side::block(master, panel, number), master.stride, words);
  const auto at = [&](Index i, Index j) {
    return i < numbers && j < cols ? Side::number(master, number + i, first + j) : 0.0f;
  };
  for (Index i = 0; i < numbers; i += Element::kNumbers, words += kTileCols)
    for (Index j = 0; j < kTileCols; ++j) words[j] = Element::word(at(i, j), at(i + 1, j));
}

}  // namespace moeloom::packed
