#include "model/freeze.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <string_view>

namespace moeloom {
namespace {

constexpr std::size_t kNamed = 4;

/// The first few, and how many more there are.
std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamed) text += " and " + std::to_string(names.size() - kNamed) + " more";
  return text;
}

struct Sides {
  std::vector<std::string> inside;
  std::vector<std::string> outside;
};

Sides sides_of(const ParameterSpec& spec, const NamePatterns& patterns) {
  Sides sides;
  std::set<std::string_view> seen;  // a tensor may be many slices
  for (const HfSlice& slice : spec.slices)
    if (seen.insert(slice.name).second)
      (matches_any(patterns, slice.name) ? sides.inside : sides.outside).push_back(slice.name);
  return sides;
}

bool names_it(const ParameterSpec& spec, const std::string& pattern) {
  return matches_glob(pattern, spec.name) ||
         std::ranges::any_of(spec.slices, [&](const HfSlice& s) { return matches_glob(pattern, s.name); });
}

}  // namespace

std::set<std::string> matching_parameters(const std::vector<ParameterSpec>& specs,
                                          const NamePatterns& patterns) {
  if (patterns.empty()) return {};
  std::set<std::string> names;
  std::vector<std::string> violations;
  for (const std::string& pattern : patterns)
    if (std::ranges::none_of(specs, [&](const ParameterSpec& spec) { return names_it(spec, pattern); }))
      violations.push_back("pattern \"" + pattern + "\" matches no tensor and no parameter of the model");
  std::size_t divided = 0;
  for (const ParameterSpec& spec : specs) {
    const bool by_name = matches_any(patterns, spec.name);
    const Sides sides = sides_of(spec, patterns);
    if (by_name || (sides.outside.empty() && !sides.inside.empty()))
      names.insert(spec.name);
    else if (!sides.inside.empty() && ++divided == 1)  // the others are its like in other layers
      violations.push_back(spec.name + " is trained as one: the patterns match " + list_of(sides.inside) +
                           " of it, but not " + list_of(sides.outside) + "; name all of it or none");
  }
  if (divided > 1)
    violations.back() += "; the same of " + std::to_string(divided - 1) + " more, as in other layers";
  if (!violations.empty()) throw ConfigError(violations);
  return names;
}

std::vector<ParameterSpec> with_frozen(std::vector<ParameterSpec> specs, const std::set<std::string>& names) {
  for (ParameterSpec& spec : specs) spec.frozen = spec.frozen || names.contains(spec.name);
  return specs;
}

std::vector<std::string> frozen_names(const ParameterStore& store) {
  std::vector<std::string> names;
  for (const Parameter& parameter : store.parameters())
    if (parameter.spec.frozen) names.push_back(parameter.spec.name);
  std::ranges::sort(names);
  return names;
}

}  // namespace moeloom
