// An input as the words of a command, or as variables: a line each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moeloom::fuzz {

/// As an argument of main: up to a zero byte.
inline std::vector<std::string> lines_of(std::string_view input) {
  std::vector<std::string> lines = {"command"};
  while (!input.empty()) {
    const std::size_t end = input.find('\n');
    lines.push_back(std::string(input.substr(0, end)).c_str());
    input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
  }
  return lines;
}

}  // namespace moeloom::fuzz
