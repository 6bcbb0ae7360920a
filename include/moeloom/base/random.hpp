// Random numbers by position: the i-th number of a stream is a function of (seed, stream, i) alone.
//
// So a value does not depend on who draws it or in which order, and the global batch and the initial weights
// are the same on every mesh. Philox4x32-10: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
// 3". No function here is collective, has a state or throws; all may be called by many threads at once.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace moeloom {

/// One stream. Its four functions draw from the same bits: use a stream or a position for one of them.
class CounterRandom {
 public:
  /// stream: what the numbers are for, usually stream_of(name).
  CounterRandom(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  /// 64 random bits.
  std::uint64_t bits(std::uint64_t position) const;
  /// In [0, bound), by multiplication with a 64-bit number: the bias is below bound / 2^64. 0 for bound = 0.
  std::uint64_t below(std::uint64_t bound, std::uint64_t position) const;
  /// In [0, 1), a multiple of 2^-53.
  double uniform(std::uint64_t position) const;
  /// Mean 0, variance 1 (Box and Muller 1958, the cosine alone).
  double normal(std::uint64_t position) const;

 private:
  std::array<std::uint32_t, 4> block(std::uint64_t position) const;

  std::uint64_t seed_;
  std::uint64_t stream_;
};

/// Random bits for loops that are to be vectorised: 32 for each element of a stretch (a row, a block of
/// weights), made from `seed`, which says what the stretch is and what it is drawn for, and from the
/// element's place in it. A mixing function (lowbias32, Wellons 2018), which compilers vectorise, unlike
/// Philox.
class RandomBits {
 public:
  explicit RandomBits(std::uint64_t seed);

  /// The 32 bits of the element at `place`, of which the lower 32 bits count.
  std::uint32_t of(Index place) const { return mixed(counter(place)); }
  /// What mixed() is given for an element. The next element's is larger by kStep, modulo 2^32.
  std::uint32_t counter(Index place) const { return first_ + kStep * static_cast<std::uint32_t>(place); }
  static constexpr std::uint32_t kStep = 0x9e3779b9u;
  /// lowbias32: of(place) is mixed(counter(place)).
  static std::uint32_t mixed(std::uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
  }
  /// 16 more bits of an element from its 32. With the lower 16 or the upper 16 of those, each pair of values
  /// is as frequent as any other.
  static std::uint32_t another_16(std::uint32_t bits) { return bits * 0x9e3779b1u >> 16; }

 private:
  std::uint32_t first_;
};

/// A stream's number from its name (64-bit FNV-1a), so that streams need no registry.
std::uint64_t stream_of(std::string_view name);

}  // namespace moeloom
