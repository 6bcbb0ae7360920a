// Long messages in little memory.
#pragma once

#include "moeloom/base/index.hpp"

#include <algorithm>
#include <cstddef>
#include <new>
#include <span>
#include <sys/mman.h>
#include <unistd.h>

namespace moeloom::testing {

/// More floats than an int counts, in little memory: one small file lies behind the addresses again and
/// again.
class FoldedFloats {
 public:
  explicit FoldedFloats(Index count) : bytes_(at(count) * sizeof(float)) {
    const int file = ::memfd_create("folded", 0);
    void* const start =
        ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file < 0 || ::ftruncate(file, kFold) != 0 || start == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::byte*>(start);
    for (std::size_t done = 0; done < bytes_; done += kFold)
      if (::mmap(start_ + done, std::min(std::size_t{kFold}, bytes_ - done), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
        throw std::bad_alloc();
    ::close(file);
  }
  FoldedFloats(const FoldedFloats&) = delete;
  FoldedFloats& operator=(const FoldedFloats&) = delete;
  ~FoldedFloats() { ::munmap(start_, bytes_); }
  std::span<float> values() const { return {reinterpret_cast<float*>(start_), bytes_ / sizeof(float)}; }

 private:
  static constexpr long kFold = 1 << 20;
  std::byte* start_ = nullptr;
  std::size_t bytes_;
};

}  // namespace moeloom::testing
