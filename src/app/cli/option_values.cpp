#include "cli/option_values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "cli/environment.hpp"

namespace moeloom {
namespace {

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

void read_value(const std::string& text, bool& value) {
  const auto read = boolean_from_text(text);
  if (!read) throw BadValue("expected one of " + std::string(kBooleanTexts));
  value = *read;
}

void read_value(const std::string& text, StepRange& value) {
  const std::vector<std::string> parts = split(text, ':');
  const auto from = value_in<Index>(parts.front()), to = value_in<Index>(parts.back());
  if (parts.size() != 2 || !from || !to || *from < 0 || *from >= *to)
    throw BadValue("expected two whole numbers from 0 on, the second the larger, as 10:20");
  value = {*from, *to};
}

std::string value_text(bool value) {
  return value ? "true" : "false";
}

std::string value_text(const StepRange& value) {
  return value_text(value.from) + ":" + value_text(value.to);
}

Index read_bytes(const std::string& text) {
  for (const auto& [suffix, bytes] : kByteUnits) {
    if (!text.ends_with(suffix)) continue;
    const std::string number = trimmed(text.substr(0, text.size() - std::string(suffix).size()));
    const auto count = value_in<Index>(number);
    if (count && *count >= 0 && *count <= std::numeric_limits<Index>::max() / bytes) return *count * bytes;
    if (count || bytes == 1) break;
    const double all = value_in<double>(number).value_or(-1) * static_cast<double>(bytes);  // 25.4MiB
    if (all >= 0 && all < 0x1p62) return static_cast<Index>(std::llround(all));
    break;
  }
  throw BadValue("expected bytes, as 4GiB, 512MiB, 64KiB, 5GB, 500MB or a plain number");
}

std::string exact_bytes_text(Index bytes) {
  std::string best = value_text(bytes);
  for (const auto& [suffix, unit] : kByteUnits) {
    if (bytes == 0 || bytes % unit != 0) continue;
    const std::string text = value_text(bytes / unit) + suffix;
    if (text.size() < best.size()) best = text;
  }
  return best;
}

std::optional<std::string> closest(const std::string& word, const std::vector<std::string>& known) {
  constexpr std::size_t kLongest = 64;  // no name is longer, and a file may hold any line
  if (word.size() > kLongest) return std::nullopt;
  // Farther than a third of the word, and the guess would confuse more than it helps.
  const std::size_t most = std::max<std::size_t>(word.size() / 3, 1);
  const auto distance = [&](const std::string& other) { return edit_distance(word, other); };
  const auto best = std::ranges::min_element(known, {}, distance);
  return best != known.end() && distance(*best) <= most ? std::optional(*best) : std::nullopt;
}

}  // namespace moeloom
