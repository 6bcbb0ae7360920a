#include "hf/adapter/adapter_patterns.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cctype>
#include <memory>
#include <regex>

#include "hf/adapter/adapter_keys.hpp"

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
  const auto refuse = [&](const std::string& why) {
    throw ConfigError({"\"" + key + "\": the pattern \"" + pattern + "\" " + why + "; " + kMergeFirst},
                      Cause::kData);
  };
  if (pattern.size() > kLongestPattern)
    refuse("is longer than " + std::to_string(kLongestPattern) + " characters");
  if (has_long_number(pattern)) refuse("has a number of ten digits or more");
  try {
    // The matching of libstdc++ that takes polynomial time.
    const auto regex = std::make_shared<const std::regex>(
        "(.*\\.)?(" + pattern + ")", std::regex::ECMAScript | std::regex_constants::__polynomial);
    return [regex](const std::string& module) {
      return module.size() <= kLongestPattern && std::regex_match(module, *regex);
    };
  } catch (const std::regex_error&) {
    refuse("is no regular expression that is known here");
  }
  return {};
}

}  // namespace

bool has_long_number(const std::string& pattern) {
  std::size_t digits = 0;
  return std::ranges::any_of(pattern, [&](unsigned char c) {
    digits = std::isdigit(c) != 0 ? digits + 1 : 0;
    return digits >= 10;
  });
}

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
