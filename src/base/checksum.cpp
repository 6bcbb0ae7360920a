#include "base/checksum.hpp"

#define XXH_INLINE_ALL
#if defined(__AVX512F__) && !defined(__clang__) && __GNUC__ < 13
#define XXH_VECTOR XXH_AVX2  // GCC 12 warns of its own AVX-512 header (bug 105593); the hash is the same
#endif
#include <xxhash.h>

namespace moeloom {

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct StreamedChecksum::State {
  XXH3_state_t xxh3;  // wants an alignment of 64 bytes, which it declares
};

StreamedChecksum::StreamedChecksum() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh3);
}

StreamedChecksum::~StreamedChecksum() = default;

void StreamedChecksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::uint64_t StreamedChecksum::value() const {
  return XXH3_64bits_digest(&state_->xxh3);
}

std::string hex_text(std::uint64_t value) {
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, value >>= 4)
    *digit = "0123456789abcdef"[value & 0xF];
  return digits;
}

}  // namespace moeloom
