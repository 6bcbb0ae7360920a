#include "cli/option_values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "cli/environment.hpp"

namespace moeloom {
namespace {

template <typename Number>
std::optional<Number> whole(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <typename Number>
std::string shortest(Number value) {
  std::array<char, 64> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : std::string();
}

struct ByteUnit {
  const char* suffix;
  Index bytes;
};
constexpr std::array kByteUnits = {ByteUnit{"TiB", Index{1} << 40},
                                   ByteUnit{"GiB", Index{1} << 30},
                                   ByteUnit{"MiB", Index{1} << 20},
                                   ByteUnit{"KiB", Index{1} << 10},
                                   ByteUnit{"TB", 1'000'000'000'000},
                                   ByteUnit{"GB", 1'000'000'000},
                                   ByteUnit{"MB", 1'000'000},
                                   ByteUnit{"KB", 1'000},
                                   ByteUnit{"", 1}};

/// Insertions, deletions and substitutions from one word to the other (Levenshtein).
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

void read_value(const std::string& text, Index& value) {
  const auto read = whole<Index>(text);
  if (!read) throw BadValue("expected a whole number");
  value = *read;
}

void read_value(const std::string& text, std::uint64_t& value) {
  const auto read = whole<std::uint64_t>(text);
  if (!read) throw BadValue("expected a whole number from 0 to 2^64 - 1");
  value = *read;
}

void read_value(const std::string& text, double& value) {
  const auto read = whole<double>(text);
  if (!read || !std::isfinite(*read)) throw BadValue("expected a finite number");
  value = *read;
}

void read_value(const std::string& text, bool& value) {
  const auto read = boolean_from_text(text);
  if (!read) throw BadValue("expected one of " + std::string(kBooleanTexts));
  value = *read;
}

void read_value(const std::string& text, std::string& value) {
  value = text;
}

void read_value(const std::string& text, std::filesystem::path& value) {
  value = text;
}

void read_value(const std::string& text, std::vector<Index>& value) {
  value.clear();
  if (text.empty()) return;
  for (const std::string& word : split(text, ',')) {
    const auto read = whole<Index>(word);
    if (!read) throw BadValue("expected whole numbers with commas between them");
    value.push_back(*read);
  }
}

void read_value(const std::string& text, std::vector<std::string>& value) {
  value.clear();
  if (text.empty()) return;
  value = split(text, ',');
  if (std::ranges::count(value, "") > 0) throw BadValue("expected words with commas between them");
}

void read_value(const std::string& text, StepRange& value) {
  const std::vector<std::string> parts = split(text, ':');
  const auto from = whole<Index>(parts.front());
  const auto to = whole<Index>(parts.back());
  if (parts.size() != 2 || !from || !to) throw BadValue("expected two whole numbers, as 10:20");
  value = {*from, *to};
}

std::string value_text(Index value) {
  return shortest(value);
}

std::string value_text(std::uint64_t value) {
  return shortest(value);
}

std::string value_text(double value) {
  return shortest(value);
}

std::string value_text(bool value) {
  return value ? "true" : "false";
}

std::string value_text(const std::string& value) {
  return value;
}

std::string value_text(const std::filesystem::path& value) {
  return value.string();
}

std::string value_text(const std::vector<Index>& value) {
  std::vector<std::string> words;
  for (const Index number : value) words.push_back(shortest(number));
  return joined(words, ",");
}

std::string value_text(const std::vector<std::string>& value) {
  return joined(value, ",");
}

std::string value_text(const StepRange& value) {
  return value_text(value.from) + ":" + value_text(value.to);
}

Index read_bytes(const std::string& text) {
  for (const auto& [suffix, bytes] : kByteUnits) {
    if (!text.ends_with(suffix)) continue;
    const std::string number = trimmed(text.substr(0, text.size() - std::string(suffix).size()));
    const auto count = whole<Index>(number);
    if (count && *count >= 0 && *count <= std::numeric_limits<Index>::max() / bytes) return *count * bytes;
    if (count || bytes == 1) break;
    const double all = whole<double>(number).value_or(-1) * static_cast<double>(bytes);  // 25.4MiB
    if (all >= 0 && all < 0x1p62) return static_cast<Index>(std::llround(all));
    break;
  }
  throw BadValue("expected bytes, as 4GiB, 512MiB, 64KiB, 5GB, 500MB or a plain number");
}

std::string exact_bytes_text(Index bytes) {
  std::string best = shortest(bytes);
  for (const auto& [suffix, unit] : kByteUnits) {
    if (bytes == 0 || bytes % unit != 0) continue;
    const std::string text = shortest(bytes / unit) + suffix;
    if (text.size() < best.size()) best = text;
  }
  return best;
}

std::optional<std::string> closest(const std::string& word, const std::vector<std::string>& known) {
  // Farther than a third of the word, and the guess would confuse more than it helps.
  std::size_t least = std::max<std::size_t>(word.size() / 3, 1) + 1;
  std::optional<std::string> best;
  for (const std::string& candidate : known) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    if (longer - std::min(word.size(), candidate.size()) >= least) continue;  // at least so many insertions
    const std::size_t distance = edit_distance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

}  // namespace moeloom
