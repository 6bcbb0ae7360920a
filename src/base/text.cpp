#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace moeloom {
namespace {

std::string printed(const char* format, double value) {
  std::array<char, 512> text;  // the largest double has 309 digits
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string with_thousands(std::string digits) {
  for (std::size_t at = digits.size(); at > 3 && digits[at - 4] != '-'; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace

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

bool is_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::string number_text(double value) {
  std::array<char, 64> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string rounded_text(double value) {
  std::string digits = printed(value >= 100 ? "%.0f" : "%.1f", value);
  if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return digits;
}

std::string readable(double value, int significant) {
  if (!std::isfinite(value)) return "–";
  if (value == 0) return "0";
  const double size = std::fabs(value);
  if (size >= 1e9 || size < 1e-3) return printed("%.3g", value);
  const int before_point = static_cast<int>(std::floor(std::log10(size))) + 1;
  if (before_point >= significant) return with_thousands(printed("%.0f", value));
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", significant - before_point, value);
  std::string digits = text.data();
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

std::string milliseconds_text(double seconds, int significant) {
  return readable(1e3 * seconds, significant) + " ms";
}

std::string bytes_text(double bytes) {
  constexpr std::array kUnits = {" bytes", " KiB", " MiB", " GiB", " TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return rounded_text(bytes) + kUnits[unit];
}

}  // namespace moeloom
