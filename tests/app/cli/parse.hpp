// A command's words parsed, for tests.
#pragma once

#include <vector>

namespace moeloom::testing {

template <typename Options>
Options parse(Options (*parse_options)(int, const char* const*), std::vector<const char*> words) {
  words.insert(words.begin(), "command");
  return parse_options(static_cast<int>(words.size()), words.data());
}

}  // namespace moeloom::testing
