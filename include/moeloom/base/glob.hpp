// Patterns of names, as a shell has them: * for any characters, ? for one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

using NamePatterns = std::vector<std::string>;

/// Whether the whole name fits; a dot is a character like others.
bool matches_glob(std::string_view pattern, std::string_view name);
bool matches_any(const NamePatterns& patterns, std::string_view name);

}  // namespace moeloom
