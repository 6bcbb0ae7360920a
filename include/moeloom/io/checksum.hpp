// A tensor's fingerprint in a checkpoint: finds damage on disk or on the way, is no protection against
// intent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace moeloom {

/// XXH3, 64 bits, seed 0: a memory-speed hash whose value is the same on every machine.
std::uint64_t checksum(std::span<const std::byte> bytes);

/// 16 lower-case hexadecimal digits.
std::string hex_text(std::uint64_t value);

}  // namespace moeloom
