// Sums along a row in an order that is written here, whoever compiles it and whatever the width of this
// machine's vectors: number j goes to the (j mod 32)th of 32 partial sums, in the order of j, and these are
// added up in halves. Thirty-two are four vectors of AVX2, as many chains as an addition takes cycles.
#pragma once

#include "tensor/lanes.hpp"

#include <algorithm>

namespace moeloom {

inline constexpr Index kPartialSums = 32;

namespace ordered {

inline constexpr Index kChains = kPartialSums / kLanes;
using Chains = std::array<Lanes, at(kChains)>;

/// Reads a row's numbers [first, first + kLanes).
struct Whole {
  Index first;
  Lanes operator()(const float* row) const { return load(row + first); }
};
/// The same where the row ends before: with zeros behind its end.
struct Part {
  Index first, count;
  Lanes operator()(const float* row) const {
    std::array<float, at(kLanes)> numbers{};
    std::copy_n(row + first, count, numbers.data());
    return load(numbers.data());
  }
};

/// The first lanes of `now`, the others of `before`.
inline Lanes first_lanes(Index count, Lanes now, Lanes before) {
  for (Index lane = count; lane < kLanes; ++lane) now[lane] = before[lane];
  return now;
}

/// chains += a row's terms. term(sum, at): `sum` plus what it makes of the numbers that at(row) reads.
template <typename Term>
void add(Chains& chains, Index count, Term&& term) {
  Chains sums = chains;  // in registers
  Index j = 0;
  for (; j + kPartialSums <= count; j += kPartialSums)
#pragma GCC unroll 8
    for (Index c = 0; c < kChains; ++c) sums[at(c)] = term(sums[at(c)], Whole{j + c * kLanes});
#pragma GCC unroll 8
  for (Index c = 0; c < kChains; ++c, j += kLanes) {
    Lanes& sum = sums[at(c)];
    if (j + kLanes <= count)
      sum = term(sum, Whole{j});
    else if (j < count)
      sum = first_lanes(count - j, term(sum, Part{j, count - j}), sum);
  }
  chains = sums;
}

inline float total(Chains chains) {
#pragma GCC unroll 3
  for (Index half = kChains / 2; half > 0; half /= 2)
#pragma GCC unroll 4
    for (Index c = 0; c < half; ++c) chains[at(c)] += chains[at(c + half)];
  std::array<float, at(kLanes)> lanes;
  store(chains[0], lanes.data());
#pragma GCC unroll 4
  for (Index half = kLanes / 2; half > 0; half /= 2)
    for (Index lane = 0; lane < half; ++lane) lanes[at(lane)] += lanes[at(lane + half)];
  return lanes[0];
}

}  // namespace ordered

/// The sum of a row's terms. term(sum, at) -> `sum` plus what it makes of the numbers at(row) of each row
/// that it reads; behind a row's end these are zeros, and what it makes of them does not count.
template <typename Term>
float ordered_sum(Index count, Term&& term) {
  ordered::Chains chains = {};
  ordered::add(chains, count, term);
  return ordered::total(chains);
}

inline float ordered_sum(const float* x, Index count) {
  return ordered_sum(count, [x](Lanes sum, auto at) { return sum + at(x); });
}

inline float ordered_dot(const float* x, const float* y, Index count) {
  return ordered_sum(count, [x, y](Lanes sum, auto at) { return multiply_add(at(x), at(y), sum); });
}

/// The same sum of terms that come in pieces, all but the last of a multiple of kPartialSums.
class OrderedSum {
 public:
  void add(const float* terms, Index count) {
    ordered::add(chains_, count, [terms](Lanes sum, auto at) { return sum + at(terms); });
  }
  float total() const { return ordered::total(chains_); }

 private:
  ordered::Chains chains_ = {};
};

}  // namespace moeloom
