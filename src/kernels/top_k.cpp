// A row is read as 32 columns. The k-th largest of their maxima is a bound that at least k values reach, and
// few more do: these alone are ranked, each against all others. Neither step has a branch that depends on how
// values compare, but for the end of the walk over the values that reach the bound; a sort, a heap and an
// insertion mispredict most of theirs.
#include "kernels/top_k.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace moeloom {
namespace {

#ifdef __AVX512F__
constexpr Index kLanes = 16;
#else
constexpr Index kLanes = 8;
#endif
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
using Counts = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

constexpr Index kColumns = 32;
constexpr Index kVectors = kColumns / kLanes;
constexpr Index kBlock = 64;  // values whose comparisons fill a word
constexpr Index kMostRanked =
    32;  // values that reach the bound; twice k by chance, all of them if they are equal
// Beyond these an insertion is as fast, or the bound lets too many through.
constexpr Index kFewestValues = 32;
constexpr Index kMostChosen = 16;
constexpr float kLeast = -std::numeric_limits<float>::infinity();

Lanes load(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

/// A bit a lane.
std::uint64_t lanes_from(const Lanes& lanes, const Lanes& bound) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(reinterpret_cast<const __m512&>(lanes), reinterpret_cast<const __m512&>(bound),
                            _CMP_GE_OQ);
#elif defined(__AVX2__)
  const Counts holds = lanes >= bound;
  return static_cast<std::uint32_t>(_mm256_movemask_ps(reinterpret_cast<const __m256&>(holds)));
#else
  std::uint64_t bits = 0;
  for (Index lane = 0; lane < kLanes; ++lane) bits |= std::uint64_t{lanes[lane] >= bound[lane]} << lane;
  return bits;
#endif
}

/// The values in blocks, the last one filled up.
class Blocks {
 public:
  Blocks(const float* values, Index n) : values_(values), whole_(n / kBlock), count_(ceil_div(n, kBlock)) {
    if (whole_ == count_) return;
    std::fill_n(last_, kBlock, kLeast);
    std::copy(values + whole_ * kBlock, values + n, last_);
  }
  Index count() const { return count_; }
  const float* operator[](Index block) const { return block < whole_ ? values_ + block * kBlock : last_; }

 private:
  const float* values_;
  Index whole_;
  Index count_;
  alignas(64) float last_[kBlock];
};

/// The k-th largest of the columns' maxima, NaN left out.
float bound_of(const Blocks& blocks, Index k) {
  Lanes maxima[kVectors];
  for (Lanes& lanes : maxima) lanes = Lanes{} + kLeast;
  for (Index b = 0; b < blocks.count(); ++b)
    for (const float* row = blocks[b]; row < blocks[b] + kBlock; row += kColumns)
      for (Index v = 0; v < kVectors; ++v) {
        const Lanes values = load(row + v * kLanes);
        maxima[v] = values > maxima[v] ? values : maxima[v];
      }
  alignas(64) float columns[kColumns];
  std::memcpy(columns, maxima, sizeof columns);
  Counts above[kVectors] = {};  // minus the columns that are larger
  for (const float column : columns)
    for (Index v = 0; v < kVectors; ++v) above[v] += (Lanes{} + column) > maxima[v];
  // The least of those with fewer than k above them.
  Lanes least = Lanes{} + std::numeric_limits<float>::infinity();
  for (Index v = 0; v < kVectors; ++v) {
    const Lanes counted = above[v] > -static_cast<std::int32_t>(k) ? maxima[v] : least;
    least = counted < least ? counted : least;
  }
  float bound = least[0];
  for (Index lane = 1; lane < kLanes; ++lane) bound = std::min(bound, least[lane]);
  return bound;
}

struct Ranked {
  alignas(64) float values[kMostRanked];
  std::int32_t places[kMostRanked];
  Index count = 0;

  /// Of a row's values those from `bound` on, by place; false if they are too many.
  bool collect(const Blocks& blocks, float bound) {
    const Lanes bounds = Lanes{} + bound;
    for (Index b = 0; b < blocks.count(); ++b) {
      const float* block = blocks[b];
      std::uint64_t reached = 0;
      for (Index i = 0; i < kBlock; i += kLanes) reached |= lanes_from(load(block + i), bounds) << i;
      if (count + std::popcount(reached) > kMostRanked) return false;
      for (; reached != 0; reached &= reached - 1) {
        const Index i = std::countr_zero(reached);
        values[count] = block[i];
        places[count++] = static_cast<std::int32_t>(b * kBlock + i);
      }
    }
    return true;
  }

  /// A value's rank is the number of larger ones and of equal ones before it.
  void choose(Index k, std::int32_t* chosen) const {
    std::int32_t ranks[kMostRanked];
    for (Index first = 0; first < count; first += kLanes) {
      const Lanes mine = load(values + first);
      Counts rank = {};
      Counts number;
      for (Index lane = 0; lane < kLanes; ++lane) number[lane] = static_cast<std::int32_t>(first + lane);
      for (Index other = 0; other < count; ++other) {
        const Lanes its = Lanes{} + values[other];
        rank -= (its > mine) | ((its == mine) & (number > static_cast<std::int32_t>(other)));
      }
      std::memcpy(ranks + first, &rank, sizeof rank);
    }
    std::int32_t order[kMostRanked];
    for (Index i = 0; i < count; ++i) order[ranks[i]] = places[i];
    std::copy_n(order, k, chosen);
  }
};

void insert_largest(const float* values, Index n, Index k, std::int32_t* chosen) {
  const auto before = [](float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); };
  Index held = 0;
  for (Index e = 0; e < n; ++e) {
    if (held == k && !before(values[e], values[chosen[k - 1]])) continue;
    Index place = held < k ? held++ : k - 1;
    for (; place > 0 && before(values[e], values[chosen[place - 1]]); --place)
      chosen[place] = chosen[place - 1];
    chosen[place] = static_cast<std::int32_t>(e);
  }
}

}  // namespace

void largest_of(const float* values, Index n, Index k, std::int32_t* chosen) {
  if (n < kFewestValues || k > kMostChosen) return insert_largest(values, n, k, chosen);
  const Blocks blocks(values, n);
  const float bound = bound_of(blocks, k);
  Ranked ranked;
  // Without a bound, what fills the last block up would reach it; so would too few where others are NaN.
  if (bound == kLeast || !ranked.collect(blocks, bound)) return insert_largest(values, n, k, chosen);
  ranked.choose(k, chosen);
}

}  // namespace moeloom
