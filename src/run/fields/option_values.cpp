#include "fields/option_values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

namespace moeloom {
namespace {

using ByteUnit = std::pair<std::string_view, Index>;
constexpr std::array<ByteUnit, 9> kByteUnits = {{{"TiB", Index{1} << 40},
                                                 {"GiB", Index{1} << 30},
                                                 {"MiB", 1 << 20},
                                                 {"KiB", 1 << 10},
                                                 {"TB", 1'000'000'000'000},
                                                 {"GB", 1'000'000'000},
                                                 {"MB", 1'000'000},
                                                 {"KB", 1'000},
                                                 {"", 1}}};

constexpr std::array<std::string_view, 4> kTrue = {"1", "true", "on", "yes"};
constexpr std::array<std::string_view, 4> kFalse = {"0", "false", "off", "no"};

std::string lowered(std::string_view text) {
  std::string word = trimmed(std::string(text));
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

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

std::optional<bool> boolean_from_text(std::string_view text) {
  const std::string word = lowered(text);
  if (std::ranges::find(kTrue, word) != kTrue.end()) return true;
  if (std::ranges::find(kFalse, word) != kFalse.end()) return false;
  return std::nullopt;
}

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

Index read_bytes(const std::string& text) {
  const auto has = [&](const ByteUnit& unit) { return text.ends_with(unit.first); };
  const auto& [suffix, unit] = *std::ranges::find_if(kByteUnits, has);
  const std::string number = trimmed(text.substr(0, text.size() - suffix.size()));
  const auto whole = value_in<Index>(number);
  const auto parts = unit > 1 ? value_in<double>(number) : std::nullopt;  // 25.4MiB
  const double bytes = (whole ? static_cast<double>(*whole) : parts.value_or(-1)) * static_cast<double>(unit);
  if (!(bytes >= 0 && bytes < 0x1p63))
    throw BadValue("expected bytes, as 4GiB, 512MiB, 64KiB, 5GB, 500MB or a plain number");
  return whole ? *whole * unit : static_cast<Index>(std::llround(bytes));
}

std::string exact_bytes_text(Index bytes) {
  const auto is_shorter = [](const std::string& a, const std::string& b) { return a.size() < b.size(); };
  std::string best = value_text(bytes);
  for (const auto& [suffix, unit] : kByteUnits)
    if (bytes != 0 && bytes % unit == 0)
      best = std::min(best, value_text(bytes / unit) + std::string(suffix), is_shorter);
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
