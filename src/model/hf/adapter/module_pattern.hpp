// Patterns of modules' names, as PEFT has them for Python's re.
#pragma once

#include <functional>
#include <string>

namespace moeloom {

/// Whether a name of at most `longest` characters fits a pattern of as many, from its begin to its end; with
/// `behind_dot` also from behind any of its dots. Empty where the pattern is longer, is none, or may mean
/// another thing here than in Python.
std::function<bool(const std::string&)> module_pattern(const std::string& pattern, std::size_t longest,
                                                       bool behind_dot = false);

}  // namespace moeloom
