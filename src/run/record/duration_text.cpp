#include "record/duration_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace moeloom {

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<long long>(std::llround(std::min(seconds, 1e9)));
  std::array<char, 64> text;
  if (whole < 60)
    std::snprintf(text.data(), text.size(), "%lld s", whole);
  else if (whole < 3600)
    std::snprintf(text.data(), text.size(), "%lld:%02lld", whole / 60, whole % 60);
  else
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  return text.data();
}

}  // namespace moeloom
