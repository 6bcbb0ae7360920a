// A fuzz target: a parser of what strangers write, and what it must hold to for every input.
//
// The same table of targets makes libFuzzer's programs (clang, MOELOOM_FUZZ) and the test that every build
// has, which feeds them mutations drawn from a seed.
#pragma once

#include "moeloom/base/errors.hpp"

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom::fuzz {

/// What no input may cause. A moeloom::Error is an answer; everything else that is thrown is a finding.
class Finding : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws Finding unless `holds`.
inline void expect(bool holds, const char* what) {
  if (!holds) throw Finding(what);
}

struct Target {
  const char* name;
  void (*run)(std::string_view input);
  std::vector<std::string> (*seeds)();
  std::vector<std::string> words;  // libFuzzer's dictionary
};

/// All of them; the end of the list is the end of the test's output.
std::span<const Target> targets();

std::vector<Target> io_targets();
std::vector<Target> data_targets();
std::vector<Target> tokenizer_targets();
std::vector<Target> model_targets();
std::vector<Target> weights_targets();
std::vector<Target> run_targets();
std::vector<Target> app_targets();
std::vector<Target> host_targets();
std::vector<Target> chat_targets();
std::vector<Target> c_targets();

/// run(input); an Error is the answer. Other exceptions pass through.
inline void run(const Target& target, std::string_view input) {
  try {
    target.run(input);
  } catch (const Error&) {
  }
}

}  // namespace moeloom::fuzz
