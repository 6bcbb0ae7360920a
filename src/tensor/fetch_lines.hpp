// Lines of memory that are read soon: some processors, above all virtual ones, fetch nothing ahead by
// themselves.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace moeloom {

/// Asks for `bytes` that begin `skip` bytes behind `from`, which may lie behind its array; nothing is read.
inline void fetch_lines(const void* from, std::size_t skip, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const auto first = std::bit_cast<std::uintptr_t>(from) + skip;
  for (std::size_t line = 0; line < bytes; line += kLine)
    __builtin_prefetch(std::bit_cast<const void*>(first + line));
}

}  // namespace moeloom
