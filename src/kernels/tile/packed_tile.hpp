// The register tile that every packed product is made of: a few rows of the left side times one panel of
// columns of the right side, summed in fp32 over a depth that fits the first-level cache.
//
// Written with the compiler's vector types, so the same source is AVX-512, AVX2, SSE or NEON code. A sum is
// one chain of fused multiply-adds in the order of depth; its bits depend neither on the tile's other rows
// nor on where the tile lies.
#pragma once

#include "moeloom/tensor/gemm.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "tile/packed_element.hpp"

namespace moeloom::packed {

// As many sums as fit the registers beside two vectors of the right side and one of the left.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileRows = 12;
#else
inline constexpr int kTileRows = 6;
#endif
inline constexpr Index kTileCols = 2 * kLanes;
/// Depth of one pass over a tile, here and below in words: deep enough that reading and writing its sums is
/// little beside it, and a block of rows still stays in the second-level cache.
inline constexpr Index kTileDepth = 512;

/// Memory that a later tile reads, and this one asks for while it multiplies: `times` times, every `every`
/// steps of kUnroll, `lines` of `pieces` times kTileCols floats, `stride` apart, and then `advance` further.
struct Ahead {
  const float* from = nullptr;
  Index lines = 0;
  Index stride = 0;
  Index pieces = 1;
  Index advance = 0;
  Index times = 0;
  Index every = 1;
};

/// c [Rows, cols] (+)= left panel; left [depth, Rows]: a strip, the Rows words of a k side by side; panel
/// [depth, kTileCols]; cols <= kTileCols.
struct TileArguments {
  const float* left = nullptr;
  const float* panel = nullptr;
  Index depth = 0;
  float* c = nullptr;
  Index c_stride = 0;
  Index cols = kTileCols;
  Write mode = Write::kReplace;
  /// Nobody reads c soon: what is replaced may go past the caches.
  bool streams = false;
  /// A tile also asks for memory of sums: its own; without anything else, of the tile below.
  Ahead ahead = {};
};

/// Steps of depth between two looks at what comes next.
inline constexpr Index kUnroll = 8;
inline constexpr Index kLineFloats = 16;

/// kTileCols floats, into the second-level cache.
inline void ask_for(const float* words, Index pieces = 1) {
  for (Index i = 0; i < pieces * kTileCols; i += kLineFloats) __builtin_prefetch(words + i, 0, 2);
}

/// A row's sums fill one vector or two.
template <std::size_t Rows, std::size_t Vectors>
using Sums = std::array<std::array<Lanes, Vectors>, Rows>;

template <std::size_t Rows, std::size_t Vectors>
void store_rows(const Sums<Rows, Vectors>& sums, float* c, Index stride) {
#pragma GCC unroll 12
  for (std::size_t i = 0; i < Rows; ++i, c += stride)
    for (std::size_t v = 0; v < Vectors; ++v) store(sums[i][v], c + v * kLanes);
}

/// Whether c may be replaced by whole lines past the caches, instead of being read to be overwritten.
inline bool streams_lines([[maybe_unused]] const TileArguments& t) {
#ifdef __AVX512F__
  constexpr std::uintptr_t kLineBytes = 64;
  return t.streams && t.mode == Write::kReplace && t.cols == kTileCols && t.c_stride % kLineFloats == 0 &&
         std::bit_cast<std::uintptr_t>(t.c) % kLineBytes == 0;
#else
  return false;  // not measured
#endif
}

/// Past the caches, to a whole vector's place.
inline void stream_lanes(Lanes lanes, float* target) {
#ifdef __AVX512F__
  _mm512_stream_ps(target, lanes);
#else
  store(lanes, target);
#endif
}

template <std::size_t Rows, std::size_t Vectors>
void stream_rows(const Sums<Rows, Vectors>& sums, float* c, Index stride) {
#pragma GCC unroll 12
  for (std::size_t i = 0; i < Rows; ++i, c += stride)
    for (std::size_t v = 0; v < Vectors; ++v) stream_lanes(sums[i][v], c + v * kLanes);
}

template <std::size_t Rows, std::size_t Vectors>
void add_rows(Sums<Rows, Vectors>& sums, const float* c, Index stride) {
#pragma GCC unroll 12
  for (std::size_t i = 0; i < Rows; ++i, c += stride)
    for (std::size_t v = 0; v < Vectors; ++v) sums[i][v] += load(c + v * kLanes);
}

inline void write_columns(const float* sums, Index rows, const TileArguments& t) {
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < t.cols; ++j) {
      float& c = t.c[i * t.c_stride + j];
      const float sum = sums[i * kTileCols + j];
      c = t.mode == Write::kAdd ? c + sum : sum;
    }
}

/// Vectors: as few as hold t.cols.
template <typename Element, std::size_t Rows, std::size_t Vectors>
void multiply_tile(const TileArguments& t) {
  constexpr auto kRows = static_cast<Index>(Rows);
  Sums<Rows, Vectors> sums{};
  const float* left = t.left;
  const float* panel = t.panel;
  const float* ahead = t.ahead.from;
  Index times = t.ahead.times, wait = 1;
  const auto multiply_add = [&](Index k) {
    std::array<Lanes, Vectors> right;
    for (std::size_t v = 0; v < Vectors; ++v) {
      right[v] = load(panel + k * kTileCols + v * kLanes);
      // Else it is read again for every row, and loads are what a tile of few rows has least of.
      keep_in_register(right[v]);
    }
#pragma GCC unroll 12
    for (std::size_t i = 0; i < Rows; ++i) {
      const auto a = Element::load_factor(left + k * kRows + static_cast<Index>(i));
      for (std::size_t v = 0; v < Vectors; ++v) {
        Lanes sum = Element::multiply_add(a, right[v], sums[i][v]);
        // Else GCC makes one sum after the other, for which it keeps all factors of kUnroll steps in memory.
        if constexpr (!kFuses) keep_in_register(sum);
        sums[i][v] = sum;
      }
    }
  };
  const bool streams = streams_lines(t);
  const float* wanted = t.c + (times == 0 ? kRows * t.c_stride : 0);
  Index k = 0;
  for (; k + kUnroll <= t.depth; k += kUnroll, left += kUnroll * kRows, panel += kUnroll * kTileCols) {
    if (times > 0 && --wait == 0) {
      for (Index line = 0; line < t.ahead.lines; ++line)
        ask_for(ahead + line * t.ahead.stride, t.ahead.pieces);
      ahead += t.ahead.advance, wait = t.ahead.every, --times;
    }
    if (k < kRows * kUnroll && !streams) __builtin_prefetch(wanted, 1), wanted += t.c_stride;
#pragma GCC unroll 8
    for (Index u = 0; u < kUnroll; ++u) multiply_add(u);
  }
  for (; k < t.depth; ++k, left += kRows, panel += kTileCols) multiply_add(0);
  if (t.cols < static_cast<Index>(Vectors) * kLanes) {  // a panel that the matrix does not fill
    std::array<float, Rows * kTileCols> buffer;
    store_rows<Rows, Vectors>(sums, buffer.data(), kTileCols);
    return write_columns(buffer.data(), Rows, t);
  }
  if (streams) return stream_rows<Rows, Vectors>(sums, t.c, t.c_stride);
  if (t.mode == Write::kAdd) add_rows<Rows, Vectors>(sums, t.c, t.c_stride);
  store_rows<Rows, Vectors>(sums, t.c, t.c_stride);
}

using TileFunction = void (*)(const TileArguments&);

/// multiply_tile for 1 <= rows <= kTileRows and 1 <= cols <= kTileCols.
template <typename Element>
TileFunction tile_function(Index rows, Index cols) {
  constexpr auto functions = []<std::size_t Vectors, std::size_t... I>(std::index_sequence<I...>) {
    return std::array<TileFunction, kTileRows>{&multiply_tile<Element, I + 1, Vectors>...};
  };
  static constexpr auto narrow = functions.template operator()<1>(std::make_index_sequence<kTileRows>{});
  static constexpr auto wide = functions.template operator()<2>(std::make_index_sequence<kTileRows>{});
  return (cols <= kLanes ? narrow : wide)[static_cast<std::size_t>(rows - 1)];
}

/// Rows [begin, end) of part `i` when n rows are split into `parts` parts that differ by at most one row.
inline std::pair<Index, Index> even_part(Index n, Index parts, Index i) {
  return {n * i / parts, n * (i + 1) / parts};
}

}  // namespace moeloom::packed
