// The ids of words seen before. Texts repeat their words: most are found here.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/vocabulary.hpp"

namespace moeloom::tokenizing {

/// A table of fixed size, a word a place: a new word takes the place of the one that was there.
class WordCache {
 public:
  static constexpr std::size_t kLongestWord = 30;
  static constexpr std::size_t kMostIds = 8;

  struct alignas(64) Entry {  // a line of the processor's cache
    std::uint8_t bytes = 0;
    std::uint8_t count = 0;
    std::array<char, kLongestWord> word{};
    std::array<std::uint32_t, kMostIds> ids{};

    bool holds(std::string_view text) const {
      return bytes == text.size() && std::memcmp(word.data(), text.data(), text.size()) == 0;
    }
  };

  /// Where a word of at most kLongestWord bytes is, or would be.
  Entry& place(std::string_view word) { return entries_[hash_of(word) % kEntries]; }

  /// The word, which belongs there, has these ids; more than kMostIds are not kept.
  static void keep(Entry& entry, std::string_view word, std::span<const std::uint32_t> ids) {
    if (ids.size() > kMostIds) return;
    entry.bytes = static_cast<std::uint8_t>(word.size());
    entry.count = static_cast<std::uint8_t>(ids.size());
    std::memcpy(entry.word.data(), word.data(), word.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static constexpr std::size_t kEntries = std::size_t{1} << 15;
  std::vector<Entry> entries_{kEntries};
};

}  // namespace moeloom::tokenizing
