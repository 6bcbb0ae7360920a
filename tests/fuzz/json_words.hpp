// What inputs of parsers of JSON are made of, and how each of many questions is asked.
#pragma once

#include "moeloom/base/errors.hpp"

#include <functional>
#include <string>
#include <vector>

namespace moeloom::fuzz {

inline const std::vector<std::string> kJsonWords = {"{",
                                                    "}",
                                                    "[",
                                                    "]",
                                                    ":",
                                                    ",",
                                                    "\"",
                                                    "null",
                                                    "true",
                                                    "false",
                                                    "-1",
                                                    "0",
                                                    "1e400",
                                                    "-0.0",
                                                    "1e-400",
                                                    "NaN",
                                                    "9223372036854775807",
                                                    "-9223372036854775808",
                                                    "9223372036854775808",
                                                    "18446744073709551615",
                                                    "\\u0000",
                                                    "\\ud800",
                                                    "\\\"",
                                                    "\xef\xbb\xbf",
                                                    "\xff"};

inline std::vector<std::string> with_json(std::vector<std::string> words) {
  words.insert(words.end(), kJsonWords.begin(), kJsonWords.end());
  return words;
}

/// Whether an action answers, or refuses as it may.
inline void try_it(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error&) {
  }
}

}  // namespace moeloom::fuzz
