// Sums that do not depend on their order: numbers are rounded to multiples of a small power of two, and
// integers are added up.
//
// The leaves of a sum are what is computed in one order whatever the mesh: a gradient over the tokens of some
// sequences. A leaf is rounded once, so that however leaves come together - on one rank or on six, by rows or
// by columns of a mesh, in one micro-batch or in several - the sum has the same bits.
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

/// To a multiple of 2^-24; a sum of such is exact up to 2^29, in any order. What is not finite stays.
double rounded_leaf(double value);

/// The gradients of one arena, as multiples of kUnit. Not copyable: those who add to it point to it.
class ExactSums {
 public:
  /// 2^-52. A sum may be as large as 2^11 in absolute value; a gradient element that is larger has exploded.
  static constexpr double kUnit = 1.0 / 4503599627370496.0;
  static constexpr double kLargest = 2048;

  /// `gradients` must outlive it; it is where leaves are computed. leaves: the most that are added up.
  ExactSums(std::span<float> gradients, Index leaves);
  /// Of some leaves of `whole` alone, in memory that may be another rank's: `sums` [gradients] begin as
  /// zeros, as `gradients` must be.
  ExactSums(std::span<float> gradients, std::span<std::int64_t> sums, const ExactSums& whole);
  ExactSums(const ExactSums&) = delete;
  ExactSums& operator=(const ExactSums&) = delete;

  /// From zero. Also in `gradients`, if a number was not finite: it stays there until then.
  void restart();
  /// Adds a leaf that lies in `gradients`, and leaves zeros there; one that lies elsewhere, of a frozen
  /// weight, is left alone. Threads of the rank share the work.
  void take(MatrixView leaf);
  void take(std::span<float> leaf) { take(MatrixView(leaf.data(), 1, std::ssize(leaf))); }
  /// Adds a leaf that lies elsewhere to the sums of the stretch `of` in `gradients`. Threads may add to
  /// different stretches at once.
  void add(ConstMatrixView leaf, MatrixView of);
  /// Adds what the leaves of a part came to elsewhere, once it is closed.
  void add(std::span<const std::int64_t> part, std::span<float> of);
  /// What is broken goes with the sums, and leaves zeros in `gradients`.
  void close();

  /// [gradients]
  std::span<std::int64_t> sums() { return sums_; }
  /// Whether a leaf since restart() was not finite, or larger than its share of kLargest. It then stands in
  /// `gradients`, as infinity if it was too large.
  bool broken() const { return broken_; }
  static float value_of(std::int64_t sum) { return static_cast<float>(static_cast<double>(sum) * kUnit); }

  /// Tokens of a leaf, set before each batch: rows [i n, (i + 1) n) of a rank's tokens are leaf i. 0: they
  /// are one.
  Index rows_per_leaf = 0;

 private:
  void add_row(float* leaf, Index count, float* of, bool clear);

  std::span<float> gradients_;
  std::vector<std::int64_t> own_;  // unless they lie elsewhere
  std::span<std::int64_t> sums_;
  float limit_;
  std::atomic<bool> broken_ = false;
};

/// visit(first row, rows) of each leaf of `rows`; of all rows at once where sums are not exact.
template <typename Visit>
void for_each_leaf(const ExactSums* sums, Index rows, Visit visit) {
  const Index each = sums == nullptr || sums->rows_per_leaf == 0 ? rows : sums->rows_per_leaf;
  for (Index first = 0; first < rows; first += each) visit(first, std::min(each, rows - first));
}

}  // namespace moeloom
