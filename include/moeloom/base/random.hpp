// Random numbers by position: the i-th number of a stream is a function of (seed, stream, i) alone.
//
// So a value does not depend on who draws it or in which order, and the global batch and the initial weights
// are the same on every mesh. Philox4x32-10, Salmon et al. 2011.
#pragma once

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

/// A stream's number from its name (FNV-1a), so that streams need no registry.
std::uint64_t stream_of(std::string_view name);

}  // namespace moeloom
