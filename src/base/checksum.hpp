// Fingerprints of tensors and files: find damage on disk or on the way, are no protection against intent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace moeloom {

/// XXH3, 64 bits, seed 0: a memory-speed hash whose value is the same on every machine.
std::uint64_t checksum(std::span<const std::byte> bytes);

/// The same of bytes that come one after the other.
class StreamedChecksum {
 public:
  StreamedChecksum();
  StreamedChecksum(const StreamedChecksum&) = delete;
  StreamedChecksum& operator=(const StreamedChecksum&) = delete;
  ~StreamedChecksum();
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// 16 lower-case hexadecimal digits.
std::string hex_text(std::uint64_t value);

}  // namespace moeloom
