#include "moeloom/base/random.hpp"

#include <cmath>
#include <numbers>

namespace moeloom {
namespace {

__extension__ using Wide = unsigned __int128;

double to_unit(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

std::uint64_t join(std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}

}  // namespace

std::array<std::uint32_t, 4> CounterRandom::block(std::uint64_t position) const {
  std::array<std::uint32_t, 4> c = {
      static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
      static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)};
  auto k0 = static_cast<std::uint32_t>(seed_);
  auto k1 = static_cast<std::uint32_t>(seed_ >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

std::uint64_t CounterRandom::bits(std::uint64_t position) const {
  const auto c = block(position);
  return join(c[0], c[1]);
}

std::uint64_t CounterRandom::below(std::uint64_t bound, std::uint64_t position) const {
  return static_cast<std::uint64_t>(static_cast<Wide>(bits(position)) * bound >> 64);
}

double CounterRandom::uniform(std::uint64_t position) const {
  return to_unit(bits(position));
}

double CounterRandom::normal(std::uint64_t position) const {
  const auto c = block(position);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - to_unit(join(c[0], c[1]))));
  return radius * std::cos(2.0 * std::numbers::pi * to_unit(join(c[2], c[3])));
}

RandomBits::RandomBits(std::uint64_t seed) {
  const std::uint64_t bits = CounterRandom(seed, 0).bits(0);
  first_ = static_cast<std::uint32_t>(bits ^ (bits >> 32));
}

std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace moeloom
