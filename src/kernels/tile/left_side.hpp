// The left side of a packed product: rows in strips, as the register tile reads them.
#pragma once

#include "moeloom/tensor/rows.hpp"

#include <array>

#include "tile/matrix_tile.hpp"

namespace moeloom::packed {

/// x [rows, numbers] -> strip [depth, stride] of words, stride >= rows; up to eight words behind the strip
/// are overwritten. Eight words of a k are written at once, and those that belong to the next k are written
/// again after it; words behind a k's rows are left over.
template <typename Element, typename Number>
void pack_strip(BasicView<const Number> x, Index stride, float* strip) {
  Index k = 0;
  for (; (k + kTransposed) * Element::kNumbers <= x.cols; k += kTransposed)
    for (Index first = (x.rows - 1) / kTransposed * kTransposed; first >= 0; first -= kTransposed) {
      EightRows block;
      for (Index i = 0; i < kTransposed; ++i)
        block[i] = Element::words_along(x.row(std::min(first + i, x.rows - 1)) + k * Element::kNumbers);
      transpose(block);
      for (Index i = 0; i < kTransposed; ++i) store8(block[i], strip + (k + i) * stride + first);
    }
  for (; k * Element::kNumbers < x.cols; ++k)
    for (Index i = 0; i < x.rows; ++i) {
      const Index number = k * Element::kNumbers;
      const Number next = number + 1 < x.cols ? x.row(i)[number + 1] : Number{};
      strip[k * stride + i] = Element::word(x.row(i)[number], next);
    }
}

/// One pass of at most kMostRows rows, in strips that differ by at most one row; for matrices of whole tiles,
/// and what is left.
template <typename Element, Index kMostRows>
class LeftSide {
 public:
  /// The rows of the next passes.
  void take(ConstRows x) { x_ = x, strips_ = ceil_div(x.rows(), kStripRows<Element>); }

  /// The words of the pass that begins at word `k`.
  void pack(Index k) {
    depth_ = std::min(kTileDepth, ceil_div(x_.cols(), Element::kNumbers) - k);
    const Index number = k * Element::kNumbers;
    const Index numbers = std::min(depth_ * Element::kNumbers, x_.cols() - number);
    x_.visit([&](auto x) { pack_strips(x.cols_from(number, numbers)); });
  }
  Index strips() const { return strips_; }
  Index depth() const { return depth_; }
  std::pair<Index, Index> rows(Index strip) const {
    if constexpr (!kOfMatrices<Element>) return even_part(x_.rows(), strips_, strip);
    const Index begin = strip * kStripRows<Element>;
    return {begin, std::min(begin + kStripRows<Element>, x_.rows())};
  }
  const float* words(Index strip) const { return words_.data() + rows(strip).first * strip_depth(); }

 private:
  Index strip_depth() const { return kOfMatrices<Element> ? padded_to(depth_, kMatrixDepth) : depth_; }

  template <typename Number>
  void pack_strips(BasicView<const Number> x) {
    if constexpr (Element::template reads<Number>)
      for (Index i = 0; i < strips_; ++i) {
        const auto [begin, end] = rows(i);
        const BasicView<const Number> of_strip = x.rows_from(begin, end - begin);
        float* const to = words_.data() + begin * strip_depth();
        if constexpr (kOfMatrices<Element>)
          pack_matrix_strip(of_strip, to);
        else
          pack_strip<Element>(of_strip, end - begin, to);
      }
  }

  ConstRows x_;  // of numbers that Element reads
  Index strips_ = 0;
  Index depth_ = 0;
  static_assert(kMostRows % (2 * kMatrixRows) == 0 && kTileDepth % kMatrixDepth == 0);
  alignas(64) std::array<float, kMostRows * kTileDepth + kTransposed> words_;
};

}  // namespace moeloom::packed
