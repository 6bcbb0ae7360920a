// Sums that do not depend on their order: numbers are rounded to multiples of a small power of two, and
// integers are added up. For kernels of one's own that make gradients (GroupedGradients); a trainer makes and
// restarts them. No function here is collective: sums of ranks come together elsewhere.
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

/// To the nearest multiple of 2^-24; a sum of such doubles is exact up to 2^29, in any order. What is not
/// finite stays.
double rounded_leaf(double value);

/// The sums of the gradients that lie in one piece of memory, as multiples of kUnit. Neither copied nor
/// moved: those who add to it point to it.
class ExactSums {
 public:
  /// 2^-52, so that 64 bits hold sums of up to 2^11 (kLargest) in absolute value; a gradient element that is
  /// larger has exploded.
  static constexpr double kUnit = 1.0 / 4503599627370496.0;
  static constexpr double kLargest = 2048;

  /// `gradients` must outlive it; it is where leaves are computed. leaves: the most that are added up, so
  /// that each may be as large as kLargest / leaves.
  ExactSums(std::span<float> gradients, Index leaves);
  /// For some of the leaves of `whole`, with sums in memory that may be shared with another rank: `sums`, as
  /// long as `gradients`, are set to zeros, and `gradients` must be zeros. Both must outlive it. Throws
  /// ShapeError for different lengths.
  ExactSums(std::span<float> gradients, std::span<std::int64_t> sums, const ExactSums& whole);
  ExactSums(const ExactSums&) = delete;
  ExactSums& operator=(const ExactSums&) = delete;

  /// Sums are zeros again, and so are `gradients` if they are broken().
  void restart();
  /// Adds a leaf that lies in `gradients`, and leaves zeros there; one that lies elsewhere, of a frozen
  /// weight, is left alone. Threads of the rank share the work.
  void take(MatrixView leaf);
  void take(std::span<float> leaf) { take(MatrixView(leaf.data(), 1, std::ssize(leaf))); }
  /// Adds a leaf that lies elsewhere to the sums of `of`, a part of `gradients` of the same shape (else
  /// ShapeError). Threads may add to different parts at once.
  void add(ConstMatrixView leaf, MatrixView of);
  /// Adds other sums, after their close(), to those of `of`, a part of `gradients` of the same length (else
  /// ShapeError).
  void add(std::span<const std::int64_t> part, std::span<float> of);
  /// Marks in the sums what is broken, so that whoever adds them is broken too, and leaves zeros in
  /// `gradients`.
  void close();

  /// One for each of `gradients`.
  std::span<std::int64_t> sums() { return sums_; }
  /// Whether a leaf since restart() was not finite, or larger than its share of kLargest. It then stands in
  /// `gradients`, as infinity if it was too large.
  bool broken() const { return broken_; }
  /// The number that a sum stands for.
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

/// visit(first row, rows) of each leaf of `rows`, the last one perhaps shorter; of all rows at once where
/// sums are not exact (null).
template <typename Visit>
void for_each_leaf(const ExactSums* sums, Index rows, Visit visit) {
  const Index each = sums == nullptr || sums->rows_per_leaf == 0 ? rows : sums->rows_per_leaf;
  for (Index first = 0; first < rows; first += each) visit(first, std::min(each, rows - first));
}

}  // namespace moeloom
