// A command's words parsed, for tests.
#pragma once

#include "moeloom/base/violations.hpp"

#include <vector>

namespace moeloom::testing {

template <typename Options>
Options parse(Options (*parse_options)(int, const char* const*), std::vector<const char*> words) {
  words.insert(words.begin(), "command");
  return parse_options(static_cast<int>(words.size()), words.data());
}

/// The same of a command that finds more than its words wrong before it says so.
template <typename Options>
Options parse(Options (*parse_options)(int, const char* const*, Violations&),
              std::vector<const char*> words) {
  words.insert(words.begin(), "command");
  Violations violations;
  Options options = parse_options(static_cast<int>(words.size()), words.data(), violations);
  violations.throw_if_any();
  return options;
}

}  // namespace moeloom::testing
