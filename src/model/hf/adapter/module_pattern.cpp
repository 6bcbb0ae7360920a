#include "hf/adapter/module_pattern.hpp"

#include <algorithm>
#include <cctype>
#include <memory>
#include <regex>
#include <string_view>

namespace moeloom {
namespace {

/// Whether Python's syntax means here what it means there: no groups but (?:, (?= and (?!, no escapes of
/// Python alone.
bool is_common_syntax(const std::string& pattern) {
  for (std::size_t i = 0; i + 1 < pattern.size(); ++i) {
    const char next = pattern[i + 1];
    if (pattern[i] == '(' && next == '?' &&
        (i + 2 == pattern.size() || std::string_view(":=!").find(pattern[i + 2]) == std::string_view::npos))
      return false;
    if (pattern[i] == '[' && (next == ']' || next == '[')) return false;
    if (pattern[i] != '\\') continue;
    if (std::isalnum(static_cast<unsigned char>(next)) != 0 &&
        std::string_view("bBdDsSwW").find(next) == std::string_view::npos)
      return false;
    ++i;
  }
  return true;
}

/// Of ten digits or more, which a count may have, and which overflows in libstdc++.
bool has_long_number(const std::string& pattern) {
  std::size_t digits = 0;
  return std::ranges::any_of(pattern, [&](unsigned char c) {
    digits = std::isdigit(c) != 0 ? digits + 1 : 0;
    return digits >= 10;
  });
}

}  // namespace

std::function<bool(const std::string&)> module_pattern(const std::string& pattern, std::size_t longest,
                                                       bool behind_dot) {
  if (pattern.size() > longest || !is_common_syntax(pattern) || has_long_number(pattern)) return {};
  try {
    // The matching of libstdc++ that takes polynomial time.
    const auto regex =
        std::make_shared<const std::regex>(behind_dot ? "(?:.*\\.)?(?:" + pattern + ")" : pattern,
                                           std::regex::ECMAScript | std::regex_constants::__polynomial);
    return [regex, longest](const std::string& module) {
      return module.size() <= longest && std::regex_match(module, *regex);
    };
  } catch (const std::regex_error&) {
    return {};
  }
}

}  // namespace moeloom
