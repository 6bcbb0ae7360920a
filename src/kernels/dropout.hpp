// Dropout of what a product reads (Srivastava et al. 2014): a mask leaves out each element with probability
// p.
//
// A rank that computes experts knows rows, but not which token each of them is. So a row's mask is drawn from
// a key, which is made of a row's own bits, and from what it is drawn for. It is then the same whoever
// computes the row, in which micro-batch, chunk or slice, and when backward makes it again; no mask travels
// or is kept. Equal rows have equal masks.
#pragma once

#include "moeloom/tensor/rows.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

struct Dropout {
  double share = 0;        // p, in [0, 1); 0: nothing is left out
  std::uint64_t seed = 0;  // other masks for another one: of a training step
};

/// A number a row, by which its masks are drawn.
using RowKeys = std::span<const std::uint64_t>;
inline double key_bytes(Index rows) {
  return array_bytes(rows, sizeof(std::uint64_t));
}

/// The checksum of each row's bytes -> keys [x.rows()].
void find_row_keys(ConstRows x, std::span<std::uint64_t> keys);
std::vector<std::uint64_t> row_keys(ConstRows x);

/// The masks of a dropout for one of those who draw them, who differ by `stream`.
class InputMask {
 public:
  InputMask(const Dropout& dropout, std::uint64_t stream);

  // Keys: one for each row.
  /// kept [x.rows, x.cols] of the same type: x, or 0 where it is left out. first_column: of x in whole rows.
  void keep(RowKeys keys, ConstRows x, Rows kept, Index first_column = 0) const;
  /// sum += x where the mask keeps it.
  void add_kept(RowKeys keys, ConstMatrixView x, MatrixView sum) const;

 private:
  std::uint64_t salt_;
  std::uint32_t dropped_below_;  // of 2^32
};

}  // namespace moeloom
