#include "moeloom/io/checksum.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace moeloom {

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string hex_text(std::uint64_t value) {
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, value >>= 4)
    *digit = "0123456789abcdef"[value & 0xF];
  return digits;
}

}  // namespace moeloom
