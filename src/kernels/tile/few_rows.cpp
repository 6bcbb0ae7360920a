#include "tile/few_rows.hpp"

#include "tile/left_side.hpp"

namespace moeloom::packed {
namespace {

/// sums [rows of the tile, cols] (+)= weights x; x [depth, cols], cols a vector or two.
struct Tile {
  const float* weights = nullptr;
  Index stride = 0;  // of the weights
  const float* x = nullptr;
  Index cols = 0;
  Index depth = 0;
  float* sums = nullptr;
  bool add = false;
  const float* ahead = nullptr;  // weights that the next tile reads, if any
};

template <std::size_t Rows, std::size_t Vectors>
void multiply_rows(const Tile& t) {
  std::array<std::array<Lanes, Vectors>, Rows> sums{};
  std::array<const float*, Rows> ends;
  for (std::size_t i = 0; i < Rows; ++i) {
    ends[i] = t.weights + static_cast<Index>(i) * t.stride + t.depth;
#ifdef __x86_64__
    asm("" : "+r"(ends[i]));  // one register a row, instead of an address computed for every number
#endif
  }
  const float* x = t.x;
  for (Index k = -t.depth; k < 0;) {
    if (t.ahead != nullptr)
#pragma GCC unroll 12
      for (std::size_t i = 0; i < Rows; ++i)
        __builtin_prefetch(t.ahead + static_cast<Index>(i) * t.stride + t.depth + k, 0, 2);
    for (const Index end = std::min<Index>(k + kLineFloats, 0); k < end;
         ++k, x += static_cast<Index>(Vectors) * kLanes) {
      std::array<Lanes, Vectors> right;
      for (std::size_t v = 0; v < Vectors; ++v) {
        right[v] = load(x + v * kLanes);
        keep_in_register(right[v]);
      }
#pragma GCC unroll 12
      for (std::size_t i = 0; i < Rows; ++i) {
        const float weight = ends[i][k];
        for (std::size_t v = 0; v < Vectors; ++v) sums[i][v] = multiply_add(weight, right[v], sums[i][v]);
      }
    }
  }
#pragma GCC unroll 12
  for (std::size_t i = 0; i < Rows; ++i)
    for (std::size_t v = 0; v < Vectors; ++v) {
      float* to = t.sums + (i * Vectors + v) * kLanes;
      store(t.add ? sums[i][v] + load(to) : sums[i][v], to);
    }
}

/// multiply_rows for any number of weights' rows and one or two vectors of x.
void multiply(const Tile& t, Index rows) {
  constexpr auto functions = []<std::size_t Vectors, std::size_t... I>(std::index_sequence<I...>) {
    return std::array{&multiply_rows<I + 1, Vectors>...};
  };
  static constexpr auto one =
      functions.operator()<1>(std::make_index_sequence<FewRowsWorkspace::kMostTileRows>{});
  static constexpr auto two = functions.operator()<2>(std::make_index_sequence<kTileRows>{});
  t.cols == kLanes ? one[at(rows - 1)](t) : two[at(rows - 1)](t);
}

/// The rows of x that one tile multiplies, and where their panel and their sums lie.
struct Panel {
  Index begin = 0;
  Index rows = 0;
  Index cols() const { return rows <= kLanes ? kLanes : kTileCols; }  // with those that belong to no row
};

/// Whole panels, and a last one with what is left.
Panel panel_of(Index rows, Index first) {
  return {first, std::min<Index>(kTileCols, rows - first)};
}

/// One block of depth of x times some rows of w, all passes.
class Strip {
 public:
  Strip(ConstMatrixView w, Index first, Index rows, FewRowsWorkspace& work)
      : w_(w.rows_from(first, rows)),
        ahead_(first + 2 * rows <= w.rows ? w.row(first) + rows * w.stride : nullptr),
        work_(work) {}

  void multiply(Index x_rows, MatrixView y, Write mode) {
    if (mode == Write::kAdd) move_sums(y, [](float& sum, float& value) { sum = value; });
    for (Index k = 0; k < w_.cols; k += kTileDepth)
      for (Index first = 0; first < x_rows; first += kTileCols) {
        const Panel panel = panel_of(x_rows, first);
        packed::multiply({.weights = w_.data + k,
                          .stride = w_.stride,
                          .x = work_.x.data() + first * w_.cols + k * panel.cols(),
                          .cols = panel.cols(),
                          .depth = std::min(kTileDepth, w_.cols - k),
                          .sums = sums(first),
                          .add = k > 0 || mode == Write::kAdd,
                          .ahead = first == 0 && ahead_ != nullptr ? ahead_ + k : nullptr},
                         w_.rows);
      }
    move_sums(y, [](float& sum, float& value) { value = sum; });
  }

 private:
  float* sums(Index first) { return work_.sums.data() + first * FewRowsWorkspace::kMostTileRows; }

  /// move(sum, y's number) for every number that this strip multiplies; y [x rows, rows of w].
  template <typename Move>
  void move_sums(MatrixView y, Move move) {
    for (Index first = 0; first < y.rows; first += kTileCols) {
      const Panel panel = panel_of(y.rows, first);
      for (Index row = 0; row < panel.rows; ++row)
        for (Index i = 0; i < w_.rows; ++i) move(sums(first)[i * panel.cols() + row], y.row(first + row)[i]);
    }
  }

  ConstMatrixView w_;
  const float* ahead_;
  FewRowsWorkspace& work_;
};

void multiply_block(ConstMatrixView w, ConstMatrixView x, MatrixView y, Write mode, FewRowsWorkspace& work) {
  for (Index first = 0; first < x.rows; first += kTileCols) {
    const Panel panel = panel_of(x.rows, first);
    pack_strip<Fp32>(x.rows_from(first, panel.rows), panel.cols(), work.x.data() + first * x.cols);
  }
  // A tile of one vector needs more rows to keep the arithmetic busy; more would share few cache sets.
  const Index step = x.rows <= kLanes ? FewRowsWorkspace::kMostTileRows : kTileRows;
  for (Index first = 0; first < w.rows; first += step) {
    const Index rows = std::min(step, w.rows - first);
    Strip(w, first, rows, work).multiply(x.rows, y.cols_from(first, rows), mode);
  }
}

}  // namespace

void multiply_few_rows(ConstMatrixView w, ConstMatrixView x, MatrixView y, Write mode,
                       FewRowsWorkspace& work) {
  for (Index k = 0; k < w.cols; k += FewRowsWorkspace::kDepth) {
    const Index depth = std::min(FewRowsWorkspace::kDepth, w.cols - k);
    multiply_block(w.cols_from(k, depth), x.cols_from(k, depth), y, k > 0 ? Write::kAdd : mode, work);
  }
}

}  // namespace moeloom::packed
