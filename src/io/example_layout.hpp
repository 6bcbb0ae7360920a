// Where the parts of an example file lie.
#pragma once

#include "base/checksum.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace moeloom {

inline constexpr std::string_view kExampleMark = "moexampl";
inline constexpr std::size_t kMostExampleKeyBytes = std::size_t{1} << 20;
inline constexpr std::size_t kExampleNumber = sizeof(std::uint64_t);
/// Mark and length of the key.
inline constexpr std::size_t kExampleStart = kExampleMark.size() + kExampleNumber;
inline constexpr std::size_t kExampleNumbers = 6;
/// The numbers, a checksum and the mark.
inline constexpr std::size_t kExampleEnd = (kExampleNumbers + 1) * kExampleNumber + kExampleMark.size();

/// Bytes with the zeros that go before the next part.
inline constexpr std::uint64_t padded_part(std::uint64_t bytes) {
  return (bytes + kExampleNumber - 1) / kExampleNumber * kExampleNumber;
}

/// Offsets in bytes. tokens and examples may be anything below 2^56.
struct ExampleLayout {
  std::uint64_t ids = 0;
  std::uint64_t learned = 0;
  std::uint64_t ends = 0;
  std::uint64_t targets = 0;
  std::uint64_t numbers = 0;
  std::uint64_t checksum = 0;
  std::uint64_t size = 0;

  ExampleLayout(std::uint64_t key_bytes, std::uint64_t tokens, std::uint64_t examples)
      : ids(kExampleStart + padded_part(key_bytes)),
        learned(ids + padded_part(tokens * sizeof(std::uint32_t))),
        ends(learned + padded_part(tokens)),
        targets(ends + examples * sizeof(std::uint64_t)),
        numbers(targets + padded_part(examples * sizeof(std::uint32_t))),
        checksum(numbers + kExampleNumbers * kExampleNumber),
        size(numbers + kExampleEnd) {}
};

/// start: of the file up to the ids; table: from the ends up to the checksum.
inline std::uint64_t example_checksum(std::uint64_t start, std::uint64_t table) {
  const std::array<std::uint64_t, 2> both = {start, table};
  return checksum(std::as_bytes(std::span(both)));
}

}  // namespace moeloom
