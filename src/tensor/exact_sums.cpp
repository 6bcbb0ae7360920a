#include "moeloom/tensor/exact_sums.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moeloom {
namespace {

constexpr Index kBlock = 1 << 14;  // elements that a thread takes at a time
constexpr double kLeafUnits = 16777216;
constexpr std::int64_t kBroken = std::numeric_limits<std::int64_t>::min();  // no leaves come to it

}  // namespace

double rounded_leaf(double value) {
  return std::nearbyint(value * kLeafUnits) / kLeafUnits;
}

ExactSums::ExactSums(std::span<float> gradients, Index leaves)
    : gradients_(gradients),
      own_(gradients.size()),
      sums_(own_),
      limit_(static_cast<float>(kLargest / static_cast<double>(std::max<Index>(leaves, 1)))) {}

ExactSums::ExactSums(std::span<float> gradients, std::span<std::int64_t> sums, const ExactSums& whole)
    : gradients_(gradients), sums_(sums), limit_(whole.limit_) {
  require(sums.size() == gradients.size(), "there is a sum for each gradient");
  restart();
}

void ExactSums::restart() {
  if (broken_) std::ranges::fill(gradients_, 0.0f);
  broken_ = false;
  parallel_blocks(std::ssize(sums_), kBlock, [&](Index begin, Index end) {
    std::fill(sums_.begin() + begin, sums_.begin() + end, std::int64_t{0});
  });
}

/// A number that has no sum goes to `of`, where it is found.
void ExactSums::add_row(float* leaf, Index count, float* of, bool clear) {
  std::int64_t* const sums = sums_.data() + (of - gradients_.data());
  bool fits = true;
  for (Index j = 0; j < count; ++j) fits &= std::abs(leaf[j]) < limit_;
  if (!fits) {
    broken_ = true;
    for (Index j = 0; j < count; ++j)
      if (!(std::abs(leaf[j]) < limit_))
        of[j] = std::isnan(leaf[j]) ? leaf[j] : std::numeric_limits<float>::infinity();
    return;
  }
  for (Index j = 0; j < count; ++j) {
    const double units = static_cast<double>(leaf[j]) * (1 / kUnit);  // exact; half is added below 2^52 alone
    sums[j] += static_cast<std::int64_t>(units + (units < 0 ? -0.5 : 0.5));
  }
  if (clear) std::fill_n(leaf, count, 0.0f);
}

void ExactSums::take(MatrixView leaf) {
  if (leaf.data < gradients_.data() || leaf.data >= gradients_.data() + gradients_.size()) return;
  const Index rows = std::max<Index>(kBlock / std::max<Index>(leaf.cols, 1), 1);
  if (leaf.rows == 1) {
    parallel_blocks(leaf.cols, kBlock, [&](Index begin, Index end) {
      add_row(leaf.data + begin, end - begin, leaf.data + begin, true);
    });
    return;
  }
  parallel_blocks(leaf.rows, rows, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) add_row(leaf.row(i), leaf.cols, leaf.row(i), true);
  });
}

void ExactSums::add(ConstMatrixView leaf, MatrixView of) {
  require(leaf.rows == of.rows && leaf.cols == of.cols, "a leaf must have the shape of its sums");
  for (Index i = 0; i < leaf.rows; ++i) add_row(const_cast<float*>(leaf.row(i)), leaf.cols, of.row(i), false);
}

void ExactSums::add(std::span<const std::int64_t> part, std::span<float> of) {
  require(part.size() == of.size(), "a part must have the shape of its sums");
  std::int64_t* const sums = sums_.data() + (of.data() - gradients_.data());
  parallel_blocks(std::ssize(part), kBlock, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      if (part[at(i)] != kBroken) {
        sums[i] += part[at(i)];
        continue;
      }
      broken_ = true;
      of[at(i)] = std::numeric_limits<float>::infinity();
    }
  });
}

void ExactSums::close() {
  if (!broken_) return;
  for (std::size_t i = 0; i < gradients_.size(); ++i)
    if (!std::isfinite(gradients_[i])) sums_[i] = kBroken;
  std::ranges::fill(gradients_, 0.0f);
}

}  // namespace moeloom
