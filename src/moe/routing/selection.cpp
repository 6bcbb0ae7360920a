#include "moe/routing/selection.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace moeloom {
namespace {

constexpr int kDigitBits = 8;
constexpr Index kDigits = Index{1} << kDigitBits;

/// In the order of the values: a larger float has a larger key. 0 and -0 are equal.
std::uint32_t key_of(float value) {
  if (std::isnan(value)) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);
  const std::uint32_t sign = 0x80000000u;
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

/// Of each expert: the key of the last that is kept, and how many with that very key are. An expert with no
/// more candidates than may be kept has a border below all keys.
struct Border {
  std::uint32_t key = 0;
  Index equal = 0;
};

std::vector<Border> find_borders(const Communicator& world, const Candidates& candidates,
                                 std::span<const std::uint32_t> keys, Index capacity) {
  std::vector<Border> borders(at(candidates.num_experts), {0, capacity});
  std::vector<std::int64_t> counts(at(candidates.num_experts * kDigits));
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    std::fill(counts.begin(), counts.end(), 0);
    const auto above = [shift](std::uint32_t key) { return std::uint64_t{key} >> (shift + kDigitBits); };
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::int32_t e = candidates.expert[i];
      if (e >= 0 && above(keys[i]) == above(borders[at(e)].key))
        ++counts[at(e * kDigits + static_cast<Index>((keys[i] >> shift) % kDigits))];
    }
    world.all_sum(counts);
    for (Index e = 0; e < candidates.num_experts; ++e) {
      Border& border = borders[at(e)];
      Index digit = kDigits - 1;
      for (; digit > 0 && counts[at(e * kDigits + digit)] < border.equal; --digit)
        border.equal -= counts[at(e * kDigits + digit)];
      border.key |= static_cast<std::uint32_t>(digit) << shift;
    }
  }
  return borders;
}

/// Of the candidates at the border of their expert, the first that it still may keep.
void keep_first_equals(const Communicator& world, const Candidates& candidates,
                       std::span<const std::uint32_t> keys, const std::vector<Border>& borders,
                       std::vector<std::uint8_t>& keep) {
  const auto is_border = [&](std::size_t i) {
    const std::int32_t e = candidates.expert[i];
    return e >= 0 && keys[i] == borders[at(e)].key;
  };
  std::vector<std::int64_t> seen(at(candidates.num_experts));
  for (std::size_t i = 0; i < keep.size(); ++i)
    if (is_border(i)) ++seen[at(candidates.expert[i])];
  world.sum_before(seen);
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (!is_border(i)) continue;
    const std::size_t e = at(candidates.expert[i]);
    if (seen[e]++ < borders[e].equal) keep[i] = 1;
  }
}

}  // namespace

std::vector<std::uint8_t> keep_largest(const Communicator& world, const Candidates& candidates,
                                       Index capacity) {
  std::vector<std::uint32_t> keys(candidates.expert.size());
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = key_of(candidates.value[i]);
  const std::vector<Border> borders = find_borders(world, candidates, keys, capacity);
  std::vector<std::uint8_t> keep(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    keep[i] = candidates.expert[i] >= 0 && keys[i] > borders[at(candidates.expert[i])].key;
  keep_first_equals(world, candidates, keys, borders, keep);
  return keep;
}

}  // namespace moeloom
