#include "hf/adapter/adapter_patterns.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cctype>

#include "hf/adapter/adapter_keys.hpp"
#include "hf/adapter/module_pattern.hpp"

namespace moeloom {
namespace {

constexpr std::size_t kLongestPattern =
    512;  // of what strangers write, which is matched with each module's name

/// Of letters, digits and dots: most patterns are names, of which a file may have one for every module.
bool is_name(const std::string& pattern) {
  return std::ranges::all_of(
      pattern, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; });
}

/// In a pattern a dot is any character.
bool ends_with_name(const std::string& module, const std::string& name) {
  if (name.size() > module.size()) return false;
  const std::size_t begin = module.size() - name.size();
  if (begin > 0 && module[begin - 1] != '.') return false;
  return std::equal(name.begin(), name.end(), module.begin() + static_cast<std::ptrdiff_t>(begin),
                    [](char p, char c) { return p == '.' || p == c; });
}

std::function<bool(const std::string&)> matcher_of(const std::string& pattern, const std::string& key) {
  if (is_name(pattern))
    return [pattern](const std::string& module) { return ends_with_name(module, pattern); };
  auto matches = module_pattern(pattern, kLongestPattern, true);
  if (!matches)
    throw ConfigError({"\"" + key + "\": the pattern \"" + pattern + "\" " +
                       (pattern.size() > kLongestPattern
                            ? "is longer than " + std::to_string(kLongestPattern) + " characters; "
                            : "is no regular expression that is known here; ") +
                       kMergeFirst},
                      Cause::kData);
  return matches;
}

}  // namespace

AdapterPatterns::AdapterPatterns(const Document& document, const std::string& key) {
  if (says_nothing(document, key)) return;
  const Document object = document.object(key);
  for (const std::string& pattern : object.keys())
    patterns_.emplace_back(matcher_of(pattern, key), object.number(pattern));
}

double AdapterPatterns::of(const std::string& module, double fallback) const {
  for (const auto& [matches, number] : patterns_)
    if (matches(module)) return number;
  return fallback;
}

}  // namespace moeloom
