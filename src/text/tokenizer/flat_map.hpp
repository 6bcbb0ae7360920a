// A hash table of 64-bit keys in one allocation, which is made once and then read.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace moeloom::tokenizing {

/// Spreads every bit of the key over the upper bits of the product.
constexpr std::uint64_t mixed(std::uint64_t key) {
  key ^= key >> 32;
  key *= 0x9E3779B97F4A7C15ULL;  // 2^64 / golden ratio
  return key ^ key >> 29;
}

template <typename Value>
class FlatMap {
 public:
  static constexpr std::uint64_t kNoKey = ~std::uint64_t{0};  // not to be used

  explicit FlatMap(std::size_t expected = 0) : slots_(std::bit_ceil(2 * expected + 2)) {}

  const Value* find(std::uint64_t key) const {
    const Slot& slot = slots_[place(key)];
    return slot.key == key ? &slot.value : nullptr;
  }

  /// The value of the key, made where there was none.
  Value& operator[](std::uint64_t key) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    if (slot.key != key) {
      slot.key = key;
      ++count_;
    }
    return slot.value;
  }

 private:
  struct Slot {
    std::uint64_t key = kNoKey;
    Value value{};
  };

  std::size_t place(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = mixed(key) & mask;
    while (slots_[at].key != key && slots_[at].key != kNoKey) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.key != kNoKey) slots_[place(slot.key)] = slot;
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace moeloom::tokenizing
