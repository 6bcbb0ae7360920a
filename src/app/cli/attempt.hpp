// Checks that go on after the first mistake, so that a person is told all of them at once.
#pragma once

#include "moeloom/base/errors.hpp"

#include <string>
#include <vector>

namespace moeloom {

inline void collect(std::vector<std::string>& violations, const std::vector<std::string>& more) {
  violations.insert(violations.end(), more.begin(), more.end());
}

/// Runs `attempt`; what it throws becomes violations, so that the next file is looked at too.
template <typename Attempt>
void attempt_all(std::vector<std::string>& violations, Attempt attempt) {
  try {
    attempt();
  } catch (const ConfigError& error) {
    collect(violations, error.violations());
  } catch (const Error& error) {
    violations.emplace_back(error.what());
  }
}

}  // namespace moeloom
