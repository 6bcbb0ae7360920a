// A permutation that a seed and a name decide.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace moeloom {

/// Of 0 .. count - 1 (Fisher and Yates); another one for another seed or name.
std::vector<Index> shuffled(Index count, std::uint64_t seed, std::string_view name);

/// A key that differs in about half of its bits where any of the three does.
std::uint64_t dealing_key(std::uint64_t seed, std::string_view name, Index number);
std::uint64_t dealing_key(std::uint64_t key, Index number);

/// A permutation of 0 .. count - 1 without a table: each place is found by itself, in a time that does not
/// depend on the count.
///
/// Places are pairs of digits, mixed by a Feistel network; what lands outside goes round again until it lands
/// inside (Black and Rogaway 2002, generalized Feistel and cycle walking). The pairs are fewer than
/// (sqrt(count) + 1)^2, so a place seldom goes round twice.
class Dealing {
 public:
  /// count from 0 to 2^62.
  Dealing(Index count, std::uint64_t key);
  /// Where `place` in [0, count) goes.
  Index operator()(Index place) const;

 private:
  Index among_few(Index place) const;
  std::uint64_t once(std::uint64_t place) const;

  std::uint64_t count_;
  std::uint64_t side_;  // values of a digit
  std::uint64_t key_;
};

}  // namespace moeloom
