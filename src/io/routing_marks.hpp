// Sizes of a routing file's fixed parts, and the checksum over what is not a block.
#pragma once

#include "moeloom/base/checksum.hpp"

#include <array>
#include <string>
#include <string_view>

namespace moeloom {

inline constexpr std::string_view kRoutingMark = "moeroute";
inline constexpr std::size_t kMostRoutingHeadingBytes = std::size_t{1} << 20;
/// Mark and length of the heading.
inline constexpr std::size_t kRoutingStart = kRoutingMark.size() + sizeof(std::uint64_t);
/// Number of steps, checksum, mark.
inline constexpr std::size_t kRoutingEnd = 2 * sizeof(std::uint64_t) + kRoutingMark.size();

/// Of the table: number and text, then bytes and checksum of each layer.
inline constexpr std::size_t bytes_of_routing_step(std::size_t layers) {
  return 2 * sizeof(std::uint64_t) * (1 + layers);
}

/// table: all between the blocks and the checksum.
inline std::uint64_t routing_checksum(std::string_view heading, std::span<const std::byte> table) {
  const std::array<std::uint64_t, 2> both = {checksum(std::as_bytes(std::span(heading))), checksum(table)};
  return checksum(std::as_bytes(std::span(both)));
}

}  // namespace moeloom
