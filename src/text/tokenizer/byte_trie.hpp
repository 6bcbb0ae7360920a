// Which of a set of contents begin at a place of a text.
#pragma once

#include <cstdint>
#include <string_view>

#include "tokenizer/flat_map.hpp"

namespace moeloom::tokenizing {

class ByteTrie {
 public:
  /// A content that is there already keeps its number unless `replaces`.
  void add(std::string_view content, std::uint32_t number, bool replaces) {
    std::uint32_t node = kRoot;
    for (std::size_t i = 0; i < content.size(); ++i) {
      Node& next = nodes_[key(node, content[i])];
      if (next.child == kRoot) next.child = ++last_;
      node = next.child;
      const bool ends = i + 1 == content.size();
      if (ends && (next.number == kNone || replaces)) next.number = number;
    }
  }

  /// found(number, length) for each content that `text` begins with, the shortest first.
  template <typename Found>
  void prefixes(std::string_view text, const Found& found) const {
    std::uint32_t node = kRoot;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const Node* next = nodes_.find(key(node, text[i]));
      if (next == nullptr) return;
      if (next->number != kNone) found(next->number, i + 1);
      node = next->child;
    }
  }

 private:
  static constexpr std::uint32_t kRoot = 0;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Node {
    std::uint32_t child = kRoot;
    std::uint32_t number = kNone;
  };

  static std::uint64_t key(std::uint32_t node, char c) {
    return std::uint64_t{node} << 8 | static_cast<std::uint8_t>(c);
  }

  FlatMap<Node> nodes_;
  std::uint32_t last_ = kRoot;
};

}  // namespace moeloom::tokenizing
