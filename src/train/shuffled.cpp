#include "shuffled.hpp"

#include "moeloom/base/random.hpp"

#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace moeloom {
namespace {

constexpr int kRounds = 10;
// Digits of two or three values leave some orders out. So few are shuffled anew for each of them.
constexpr std::uint64_t kFew = 16;

/// splitmix64's finalizer (Stafford 2011, variant 13): a lookup must not cost ten Philox blocks.
std::uint64_t mixed(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
  return bits ^ (bits >> 31);
}

constexpr std::uint64_t kOddStep = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio

/// In [0, bound), of 32 of the bits, where the bound has no more.
std::uint64_t below(std::uint64_t bound, std::uint64_t bits) {
  return ((bits >> 32) * bound) >> 32;
}

}  // namespace

std::vector<Index> shuffled(Index count, std::uint64_t seed, std::string_view name) {
  std::vector<Index> order(at(count));
  std::iota(order.begin(), order.end(), Index{0});
  const CounterRandom random(seed, stream_of(name));
  for (Index i = count - 1; i > 0; --i) {
    const auto place = static_cast<std::uint64_t>(i);
    std::swap(order[at(i)], order[random.below(place + 1, place)]);
  }
  return order;
}

std::uint64_t dealing_key(std::uint64_t seed, std::string_view name, Index number) {
  return CounterRandom(seed, stream_of(name)).bits(static_cast<std::uint64_t>(number));
}

std::uint64_t dealing_key(std::uint64_t key, Index number) {
  return mixed(key + kOddStep * static_cast<std::uint64_t>(number + 1));
}

Dealing::Dealing(Index count, std::uint64_t key) : count_(static_cast<std::uint64_t>(count)), key_(key) {
  side_ = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(count_)));
  while (side_ * side_ < count_) ++side_;
}

std::uint64_t Dealing::once(std::uint64_t place) const {
  std::uint64_t left = place / side_, right = place % side_;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t bits = mixed(key_ + kOddStep * (right * kRounds + static_cast<unsigned>(round) + 1));
    left += below(side_, bits);
    if (left >= side_) left -= side_;
    std::swap(left, right);
  }
  return left * side_ + right;
}

Index Dealing::among_few(Index place) const {
  std::array<std::uint8_t, kFew> order{};
  std::iota(order.begin(), order.end(), std::uint8_t{0});
  for (std::uint64_t i = count_ - 1; i > 0; --i)
    std::swap(order[i], order[below(i + 1, mixed(key_ + kOddStep * i))]);
  return order[at(place)];
}

Index Dealing::operator()(Index place) const {
  if (count_ <= kFew) return among_few(place);
  auto found = static_cast<std::uint64_t>(place);
  do found = once(found);
  while (found >= count_);
  return static_cast<Index>(found);
}

}  // namespace moeloom
