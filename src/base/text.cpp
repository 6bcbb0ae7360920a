#include "moeloom/base/text.hpp"

#include <array>
#include <charconv>
#include <cstdio>

namespace moeloom {

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) - begin + 1));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t end = text.find(separator);
    words.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return words;
    text.remove_prefix(end + 1);
  }
}

std::string number_text(double value) {
  std::array<char, 64> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string rounded_text(double value) {
  std::array<char, 512> text;  // the largest double has 309 digits
  std::snprintf(text.data(), text.size(), value >= 100 ? "%.0f" : "%.1f", value);
  std::string digits = text.data();
  if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return digits;
}

std::string bytes_text(double bytes) {
  constexpr std::array kUnits = {" bytes", " KiB", " MiB", " GiB", " TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return rounded_text(bytes) + kUnits[unit];
}

}  // namespace moeloom
