#include "tensor/pages.hpp"

#include <algorithm>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

namespace moeloom {

void drop(std::span<float> values) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(values.data());
  const std::uintptr_t end = begin + values.size_bytes();
  const std::uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  const bool dropped =
      first < last && ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) == 0;
  if (!dropped) {  // what the system refuses to take is filled, as what shares a page with others is
    std::ranges::fill(values, 0.0f);
    return;
  }
  const std::size_t before = (first - begin) / sizeof(float), after = (end - last) / sizeof(float);
  std::ranges::fill(values.first(before), 0.0f);
  std::ranges::fill(values.last(after), 0.0f);
}

}  // namespace moeloom
