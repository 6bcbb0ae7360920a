// A task owns a fixed rectangle of one group's gradient and adds up all its rows, so no two threads add to
// the same place. Rows of dy and x are the depth of this product: any number of them, nothing to compile.
#include "tile/packed_weight_grad.hpp"

#include "moeloom/base/parallel.hpp"
#include "tensor/rounded_sums.hpp"
#include "tensor/tree_sum.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "tile/matrix_tile.hpp"
#include "tile/tiled_products.hpp"

namespace moeloom::packed {
namespace {

// Large enough that packing both operands of a rectangle is little beside multiplying them. A gradient is cut
// into even ones of at most so many rows and columns: a small one at its edge would be all packing.
constexpr Index kRectangleRows = 768;
constexpr Index kRectangleCols = 1024;
static_assert(kRectangleCols % kTileCols == 0);
/// Rows that are packed at a time.
constexpr Index kRowsTogether = 8;
/// Words of depth of the panels that one strip of dy meets in a row: as many as stay in the first-level cache
/// for the next strip; twice as many where sums are read, which memory delivers faster along their lines.
constexpr Index kWordsTogether = 256, kWordsBesideSums = 512;
/// Token rows of one pass: a chunk of the one order, whatever the width of this machine's vectors.
constexpr Index kPassRows = kSumChunkRows;
static_assert(kPassRows % Bf16::kNumbers == 0, "a pair of tokens must not lie in two passes");

constexpr Index kMostStripRows = std::max(kStripRows<Fp32>, kStripRows<Bf16Matrix>);

/// dy [R, rectangle rows] and x [R, rectangle columns] of one group, source after source.
struct Rectangle {
  ConstRows dy;
  ConstRows x;
  std::span<const Index> rows_per_source;
};

/// A thread's memory: operands packed for one pass, and partial sums of sources.
class Workspace {
 public:
  std::array<float, kRowsTogether * kRectangleCols> words;
  Matrix left;
  Matrix panels;
  /// What a tile adds up before it is rounded.
  alignas(64) std::array<float, kMostStripRows * kTileCols> tile;
  Matrix& partial(std::size_t level) {
    if (partials_.size() <= level) partials_.resize(level + 1);
    return partials_[level];
  }

 private:
  std::vector<Matrix> partials_;
};

/// Words of depth that so many tokens have in a strip; for matrices with zeros behind the last.
template <typename Element>
Index depth_of(Index tokens) {
  const Index words = ceil_div(tokens, Element::kNumbers);
  return kOfMatrices<Element> ? padded_to(words, kMatrixDepth) : words;
}

/// source [tokens, cols] -> a row of `packed` a strip of Width columns, [depth, Width] words side by side,
/// the depth being tokens. The last strip has `last` columns, of which those that the source lacks are zeros.
template <typename Element, Index Width, typename Number>
void pack_strips(BasicView<const Number> source, Index last, Matrix& packed, float* words) {
  const Index full = source.cols / Width, rest = source.cols % Width;
  const Index words_deep = ceil_div(source.rows, Element::kNumbers), depth = depth_of<Element>(source.rows);
  packed.reshape_uninitialised(ceil_div(source.cols, Width), depth * Width);
  for (Index strip = 0; strip < packed.rows() && words_deep < depth; ++strip)
    std::fill(packed.row(strip) + words_deep * Width, packed.row(strip) + depth * Width, 0.0f);
  // A few rows at a time: each strip's page is then visited once for all of them.
  for (Index first = 0; first < words_deep; first += kRowsTogether) {
    const Index count = std::min(kRowsTogether, words_deep - first);
    std::array<const float*, kRowsTogether> from;
    for (Index i = 0; i < count; ++i) {
      const Index row = (first + i) * Element::kNumbers;
      const Number* next = row + 1 < source.rows ? source.row(row + 1) : nullptr;
      from[at(i)] = Element::pack_down(source.row(row), next, source.cols, words + i * source.cols);
    }
    float* to = packed.row(0) + first * Width;
    for (Index strip = 0; strip < full; ++strip, to += depth * Width)
      for (Index i = 0; i < count; ++i)  // of a size that the compiler knows: no call
        std::memcpy(to + i * Width, from[at(i)] + strip * Width, Width * sizeof(float));
    if (rest == 0) continue;
    to = packed.row(full) + first * last;
    for (Index i = 0; i < count; ++i, to += last)
      std::fill_n(std::copy_n(from[at(i)] + full * Width, rest, to), last - rest, 0.0f);
  }
}

template <typename Element, Index Width>
void pack_strips(ConstRows source, Index last, Matrix& packed, float* words) {
  source.visit([&]<typename Number>(BasicView<const Number> view) {
    if constexpr (Element::template reads<Number>) pack_strips<Element, Width>(view, last, packed, words);
  });
}

/// Eight columns' words of tokens from `token` on: zeros where there are none.
template <typename Number>
Eight words_of_tokens(BasicView<const Number> source, Index token, Index col) {
  constexpr Index kWidth = kTransposed;
  if (token + 1 < source.rows && col + kWidth <= source.cols)
    return Bf16::words_down(source.row(token) + col, source.row(token + 1) + col);
  std::array<std::array<Number, kWidth>, 2> pair{};
  for (Index i = 0; i < std::min<Index>(2, source.rows - token); ++i)
    std::copy_n(source.row(token + i) + col, std::min(kWidth, source.cols - col), pair[at(i)].data());
  return Bf16::words_down(pair[0].data(), pair[1].data());
}

/// source [tokens, cols] -> a row of `packed` a strip of columns, as multiply_matrix_tile() reads its left
/// side: a column of the source a row.
template <typename Number>
void pack_matrix_strips(BasicView<const Number> source, Matrix& packed) {
  const Index depth = depth_of<Bf16Matrix>(source.rows), full = kStripRows<Bf16Matrix>;
  packed.reshape_uninitialised(ceil_div(source.cols, full), depth * full);
  for (Index k = 0; k < depth; k += kTransposed)
    for (Index col = 0; col < source.cols; col += kTransposed) {
      EightRows words;
      for (Index i = 0; i < kTransposed; ++i)
        words[i] = words_of_tokens(source, (k + i) * Bf16::kNumbers, col);
      transpose(words);
      const Index strip = col / full,
                  height = padded_to(std::min(full, source.cols - strip * full), kMatrixRows);
      float* to =
          packed.row(strip) + (k / kMatrixDepth * height + col % full) * kMatrixDepth + k % kMatrixDepth;
      for (Index i = 0; i < kTransposed; ++i) store8(words[i], to + i * kMatrixDepth);
    }
}

template <typename Element>
void pack_left(ConstRows dy, Workspace& work) {
  if constexpr (kOfMatrices<Element>)
    dy.visit([&](auto view) { pack_matrix_strips(view, work.left); });
  else
    pack_strips<Element, kTileRows>(dy, dy.cols() % kTileRows, work.left, work.words.data());
}

/// multiply(i, j, tile) for each tile of dy^T x, at most kPassRows rows: from its row i and column j on.
/// `tile` lacks where it is written, by `mode`.
template <typename Element, typename Multiply>
void for_each_tile(ConstRows dy, ConstRows x, Workspace& work, Write mode, Multiply multiply) {
  constexpr Index kStrip = kStripRows<Element>;
  [[maybe_unused]] const Registers<Element> registers;
  pack_left<Element>(dy, work);
  pack_strips<Element, kTileCols>(x, kTileCols, work.panels, work.words.data());
  const Index rows = dy.cols(), cols = x.cols(), depth = depth_of<Element>(dy.rows());
  const Index words = mode == Write::kAdd ? kWordsBesideSums : kWordsTogether;
  const Index together = std::max<Index>(1, words / std::max<Index>(1, depth)) * kTileCols;
  for (Index first = 0; first < cols; first += together)
    for (Index i = 0; i < rows; i += kStrip)
      for (Index j = first; j < std::min(first + together, cols); j += kTileCols)
        multiply(i, j,
                 TileArguments{.left = work.left.row(i / kStrip),
                               .panel = work.panels.row(j / kTileCols),
                               .depth = depth,
                               .cols = std::min<Index>(kTileCols, cols - j)});
}

/// The sums that the tile to the right of one with `rows` rows adds to.
Ahead sums_ahead(const TileArguments& tile, Index rows) {
  const Index lines = ceil_div(rows, std::max<Index>(1, tile.depth / kUnroll));
  // Behind the last tile of a row that is the next row's, or nothing, which a prefetch may ask for.
  return {
      .from = std::bit_cast<const float*>(std::bit_cast<std::uintptr_t>(tile.c) + kTileCols * sizeof(float)),
      .lines = lines,
      .stride = tile.c_stride,
      .advance = lines * tile.c_stride,
      .times = ceil_div(rows, lines)};
}

/// dw (+)= dy^T x for at most kPassRows rows. is_last: nothing is added to dw soon.
template <typename Element>
void add_pass(ConstRows dy, ConstRows x, MatrixView dw, Write mode, Workspace& work, bool is_last = false) {
  for_each_tile<Element>(dy, x, work, mode, [&](Index i, Index j, TileArguments tile) {
    tile.c = dw.row(i) + j;
    tile.c_stride = dw.stride;
    tile.mode = mode;
    tile.streams = is_last;
    if (mode == Write::kAdd) tile.ahead = sums_ahead(tile, std::min(kStripRows<Element>, dw.rows - i));
    multiply_strip<Element>(std::min(kStripRows<Element>, dw.rows - i), tile);
  });
  if (is_last) finish_streaming();
}

/// The same, rounded once: nothing is added to dw before the next call.
template <typename Element>
void add_pass(ConstRows dy, ConstRows x, Bf16View dw, Write mode, Workspace& work) {
  float* const sums = work.tile.data();
  const bool streams = mode == Write::kReplace;
  for_each_tile<Element>(dy, x, work, mode, [&](Index i, Index j, TileArguments tile) {
    const Index rows = std::min(kStripRows<Element>, dw.rows - i);
    for (Index row = 0; row < rows && mode == Write::kAdd; ++row)
      for (Index col = 0; col < tile.cols; ++col)
        sums[row * kTileCols + col] = bf16_to_float(dw(i + row, j + col));
    tile.c = sums;
    tile.c_stride = kTileCols;
    tile.mode = mode;
    multiply_strip<Element>(rows, tile);
    for (Index row = 0; row < rows; ++row)
      write_rounded_row(sums + row * kTileCols, tile.cols, streams, dw.row(i + row) + j);
  });
  if (streams) finish_rounded_streams();
}

template <typename Element>
void sum_rows(ConstRows dy, ConstRows x, MatrixView dw, Workspace& work, Write mode) {
  for (Index row = 0; row < dy.rows(); row += kPassRows) {
    const Index count = std::min(kPassRows, dy.rows() - row);
    add_pass<Element>(dy.rows_from(row, count), x.rows_from(row, count), dw, row == 0 ? mode : Write::kAdd,
                      work);
  }
}

Index rows_of(const Rectangle& r, Index lo, Index hi) {
  return std::reduce(r.rows_per_source.begin() + lo, r.rows_per_source.begin() + hi, Index{0});
}

/// Whether the `rows` of sources [lo, hi) are one pass of one source: its sums are whole in the tile, which
/// may therefore add them to another source's.
bool is_one_pass(const Rectangle& r, Index lo, Index hi, Index rows) {
  const auto sources = r.rows_per_source.subspan(at(lo), at(hi - lo));
  return rows <= kPassRows && std::ranges::count(sources, rows) == 1;
}

/// Sources [lo, hi), the first of whose rows is `first`.
struct Sources {
  Index lo, hi, first;
};

/// dw = the sum over sources that have rows. Those without are left out, which adding their zeros would not
/// change.
template <typename Element>
void sum_sources(const Rectangle& r, Sources sources, MatrixView dw, Workspace& work, std::size_t level) {
  const auto [lo, hi, first] = sources;
  if (hi - lo == 1) {
    const Index count = rows_of(r, lo, hi);
    return sum_rows<Element>(r.dy.rows_from(first, count), r.x.rows_from(first, count), dw, work,
                             Write::kReplace);
  }
  const Index mid = tree_split(lo, hi);
  const Index left_rows = rows_of(r, lo, mid), right_rows = rows_of(r, mid, hi);
  if (left_rows == 0) return sum_sources<Element>(r, {mid, hi, first}, dw, work, level);
  sum_sources<Element>(r, {lo, mid, first}, dw, work, level);
  if (right_rows == 0) return;
  const Index next = first + left_rows;
  if (is_one_pass(r, mid, hi, right_rows))
    return add_pass<Element>(r.dy.rows_from(next, right_rows), r.x.rows_from(next, right_rows), dw,
                             Write::kAdd, work);
  work.partial(level).reshape_uninitialised(dw.rows, dw.cols);
  const MatrixView right = work.partial(level);
  sum_sources<Element>(r, {mid, hi, next}, right, work, level + 1);
  add(right, dw);
}

/// dw (+)= the rectangle's sum over all its rows.
template <typename Element>
void write_rectangle(const Rectangle& r, MatrixView dw, Write mode, Workspace& work) {
  const auto sources = static_cast<Index>(r.rows_per_source.size());
  if (is_one_pass(r, 0, sources, r.dy.rows())) return add_pass<Element>(r.dy, r.x, dw, mode, work, true);
  if (mode == Write::kReplace) return sum_sources<Element>(r, {0, sources, 0}, dw, work, 0);
  work.partial(0).reshape_uninitialised(dw.rows, dw.cols);
  const MatrixView sum = work.partial(0);
  sum_sources<Element>(r, {0, sources, 0}, sum, work, 1);
  add(sum, dw);
}

template <typename Element>
void write_rectangle(const Rectangle& r, Bf16View dw, Write mode, Workspace& work) {
  const auto sources = static_cast<Index>(r.rows_per_source.size());
  if (is_one_pass(r, 0, sources, r.dy.rows())) return add_pass<Element>(r.dy, r.x, dw, mode, work);
  work.partial(0).reshape_uninitialised(dw.rows, dw.cols);
  const MatrixView sum = work.partial(0);
  sum_sources<Element>(r, {0, sources, 0}, sum, work, 1);
  write_rounded(sum, dw, mode);
}

/// Each source's sum is a leaf of `sums`, at the place of dw.
template <typename Element>
void add_leaves(const Rectangle& r, MatrixView dw, ExactSums& sums, Workspace& work) {
  work.partial(0).reshape_uninitialised(dw.rows, dw.cols);
  const MatrixView leaf = work.partial(0);
  Index first = 0;
  for (const Index count : r.rows_per_source) {
    if (count > 0) {
      sum_rows<Element>(r.dy.rows_from(first, count), r.x.rows_from(first, count), leaf, work,
                        Write::kReplace);
      sums.add(leaf, dw);
    }
    first += count;
  }
}

void clear(auto target) {
  for (Index i = 0; i < target.rows; ++i) std::fill_n(target.row(i), target.cols, 0);
}

std::vector<Index> first_rows(const GroupedRows& rows) {
  std::vector<Index> first = {0};
  for (Index g = 0; g < rows.groups(); ++g) first.push_back(first.back() + rows.of_group(g));
  return first;
}

}  // namespace

template <typename Element>
void grouped_weight_grad(ConstRows dy, ConstRows x, const GroupedRows& rows, const GroupedGradients& dw,
                         Write mode) {
  rows.check(dy, x);
  check_that_it_reads<Element>(dy);
  check_that_it_reads<Element>(x);
  dw.check(rows.groups(), dy.cols(), x.cols());
  const std::vector<Index> first = first_rows(rows);
  std::vector<Workspace> workspaces(static_cast<std::size_t>(threads()));
  static_assert(kRectangleRows % kStripRows<Element> == 0, "padding leaves no task without rows");
  if (dy.cols() == 0 || x.cols() == 0) return;
  const Index down = ceil_div(dy.cols(), kRectangleRows), across = ceil_div(x.cols(), kRectangleCols);
  const Index most_rows = padded_to(ceil_div(dy.cols(), down), kStripRows<Element>),
              most_cols = padded_to(ceil_div(x.cols(), across), kTileCols);
  const auto write_task = [&](Index task) {
    const Index group = task / (down * across);
    const Index top = task / across % down * most_rows, left = task % across * most_cols;
    const Index height = std::min(most_rows, dy.cols() - top);
    const Index width = std::min(most_cols, x.cols() - left);
    const Index begin = first[static_cast<std::size_t>(group)];
    const Index count = first[static_cast<std::size_t>(group) + 1] - begin;
    const auto write = [&](auto stacked) {
      const auto target = stacked.rows_from(top, height).cols_from(left, width);
      if (count == 0) {
        if (mode == Write::kReplace && dw.sums() == nullptr) clear(target);
        return;
      }
      const Rectangle rectangle{dy.rows_from(begin, count).cols_from(top, height),
                                x.rows_from(begin, count).cols_from(left, width),
                                rows.rows_per_source.subspan(static_cast<std::size_t>(group * rows.sources),
                                                             static_cast<std::size_t>(rows.sources))};
      Workspace& work = workspaces[static_cast<std::size_t>(thread_index())];
      if constexpr (std::is_same_v<decltype(target), const MatrixView>)
        if (dw.sums() != nullptr) return add_leaves<Element>(rectangle, target, *dw.sums(), work);
      write_rectangle<Element>(rectangle, target, mode, work);
    };
    std::visit(write, dw.group(group, dy.cols()));
  };
  parallel_for(rows.groups() * down * across, write_task);
}

template void grouped_weight_grad<Fp32>(ConstRows, ConstRows, const GroupedRows&, const GroupedGradients&,
                                        Write);
template void grouped_weight_grad<Bf16>(ConstRows, ConstRows, const GroupedRows&, const GroupedGradients&,
                                        Write);
template void grouped_weight_grad<Bf16Matrix>(ConstRows, ConstRows, const GroupedRows&,
                                              const GroupedGradients&, Write);

}  // namespace moeloom::packed
