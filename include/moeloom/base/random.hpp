// Random numbers by position: the i-th number of a stream is a function of (seed, stream, i) alone.
//
// So a value does not depend on who draws it or in which order, and the global batch and the initial weights
// are the same on every mesh. Philox4x32-10, Salmon et al. 2011.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace moeloom {

class CounterRandom {
 public:
  CounterRandom(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  std::uint64_t bits(std::uint64_t position) const;
  /// In [0, bound), by multiplication with a 64-bit number: the bias is below bound / 2^64.
  std::uint64_t below(std::uint64_t bound, std::uint64_t position) const;
  /// In [0, 1).
  double uniform(std::uint64_t position) const;
  /// Mean 0, variance 1 (Box-Muller).
  double normal(std::uint64_t position) const;

 private:
  std::array<std::uint32_t, 4> block(std::uint64_t position) const;

  std::uint64_t seed_;
  std::uint64_t stream_;
};

/// Random bits for loops that are to be vectorised: 32 for each element of a stretch, made from `seed`, which
/// says what the stretch is and what it is drawn for, and from the element's place in it. A mixing function
/// (lowbias32, Wellons 2018), which unlike Philox is vectorised.
class RandomBits {
 public:
  explicit RandomBits(std::uint64_t seed);

  std::uint32_t of(Index place) const { return mixed(counter(place)); }
  /// What is mixed for an element, and the step to the next one's: a loop counts by it.
  std::uint32_t counter(Index place) const { return first_ + kStep * static_cast<std::uint32_t>(place); }
  static constexpr std::uint32_t kStep = 0x9e3779b9u;
  static std::uint32_t mixed(std::uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
  }
  /// 16 more of an element's: with the lower 16 of them or the upper ones, each pair is as frequent.
  static std::uint32_t another_16(std::uint32_t bits) { return bits * 0x9e3779b1u >> 16; }

 private:
  std::uint32_t first_;
};

/// A stream's number from its name (FNV-1a), so that streams need no registry.
std::uint64_t stream_of(std::string_view name);

}  // namespace moeloom
