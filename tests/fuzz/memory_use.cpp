#include "fuzz/memory_use.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <new>

namespace moeloom::fuzz {
namespace {

std::atomic<std::ptrdiff_t> held = 0, most = 0, before = 0;

}  // namespace

void count_memory() {
  before = held.load();
  most = held.load();
}

std::size_t most_memory() {
  return static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, most - before));
}

static void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const std::ptrdiff_t now = held += static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
  if (now > most) most = now;
  return memory;
}

static void forget(void* memory) noexcept {
  if (memory != nullptr) held -= static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace moeloom::fuzz

void* operator new(std::size_t bytes) {
  return moeloom::fuzz::counted(std::malloc(bytes));
}
// The library sorts in memory from here, and gives it back to the operator below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return operator new(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return moeloom::fuzz::counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept {
  moeloom::fuzz::forget(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  moeloom::fuzz::forget(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  moeloom::fuzz::forget(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  moeloom::fuzz::forget(memory);
}
