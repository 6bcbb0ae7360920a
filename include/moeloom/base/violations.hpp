// What is wrong with a configuration, collected so that all of it is told at once.
#pragma once

#include "moeloom/base/errors.hpp"
#include "moeloom/base/index.hpp"

#include <string>
#include <vector>

namespace moeloom {

/// No count of a configuration is larger: products of a few such are formed only after this.
inline constexpr Index kLargestCount = Index{1} << 40;

/// Each text names what was given: "steps = 0 must be at least 1".
class Violations {
 public:
  void unless(bool holds, const std::string& text) {
    if (!holds) add(text);
  }
  void unless_between(const std::string& name, Index value, Index least, Index most);
  /// Nor larger than kLargestCount.
  void unless_at_least(Index least, const std::string& name, Index value);
  /// The rest also asks for a finite number.
  void unless_positive(const std::string& name, double value);
  void unless_not_negative(const std::string& name, double value);
  void unless_below_one(const std::string& name, double value);
  void add(const std::string& text) { list_.push_back(text); }
  void add(const std::vector<std::string>& texts) { list_.insert(list_.end(), texts.begin(), texts.end()); }
  /// Runs `check`; what it throws of this library's errors is added, so that the next check is made too.
  template <typename Check>
  void attempt(Check check) {
    try {
      check();
    } catch (const ConfigError& error) {
      add(error.violations());
    } catch (const Error& error) {
      add(error.what());
    }
  }

  bool empty() const { return list_.empty(); }
  const std::vector<std::string>& list() const { return list_; }
  /// Throws ConfigError with all of them.
  void throw_if_any() const {
    if (!empty()) throw ConfigError(list_);
  }

 private:
  std::vector<std::string> list_;
};

}  // namespace moeloom
