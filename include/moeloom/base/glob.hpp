// Patterns of names, as a shell has them: * for any characters, ? for one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

/// An empty list matches nothing.
using NamePatterns = std::vector<std::string>;

/// Whether the whole name fits, upper and lower case told apart; a dot and a slash are characters like
/// others, and nothing escapes * or ?.
bool matches_glob(std::string_view pattern, std::string_view name);
/// Whether the name fits at least one of them.
bool matches_any(const NamePatterns& patterns, std::string_view name);

}  // namespace moeloom
